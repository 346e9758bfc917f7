// What a rank (libxmpi) and its proxy say to each other on the control socket: an AF_UNIX
// SOCK_SEQPACKET pair whose rank end is named by XMPI_FD, one message a packet. This header is the
// whole format: plain values, libc only, no allocation, so a signal handler may use it. Decode
// trusts nothing it reads. It never touches a socket and never decides what a message means.
//
// A packet is a fixed little-endian header of kHeaderSize bytes, then for `env` the name, then the
// text (for `env` the value). Every packet carries {slot, epoch, migration, attempt}; the rank
// echoes what its proxy last told it. Fields that a kind does not name are zero.
//
//   from the rank | fields                          | when
//   hello         | thread, rank, version, signal,  | XMPI_Init is done; only from here on may the
//                 |   text (empty, or a warning)    |   proxy signal that thread with that signal
//   sockets       | text (see below)                | before hello and running, and whenever the
//                 |                                 |   list has changed
//   noticed       | migration, passed               | a notice was read; again when it is repeated
//   arrived       | migration, passed, refused,text | the rank stopped at stop_call
//   checked       | migration, refused, text        | its barrier ended and it looked for messages
//   parked        | migration                       | session finalized; it reads and does no more
//   running       | migration, passed, rebuilt      | session reopened, about to leave the call
//   resumed       | migration, passed               | a cancel was read, it goes on in place (a
//                 |                                 |   rank reads it at its next call or signal)
//   finalizing    | passed                          | XMPI_Finalize began: signal it no more
//
//   from the proxy| fields                          | means
//   notice        | migration                       | written first, then the thread is signalled;
//                 |                                 |   migrations are numbered upwards
//   agree         | migration, stop_call            | all stop in call number stop_call
//   check         | migration                       | all have arrived; goes to all ranks or none
//   teardown      | migration                       | all are clear; irrevocable
//   cancel        | migration, text (the reason)    | go on in place; void after teardown
//   env           | migration, name, text           | for a parked rank: setenv(name, text)
//   continue      | migration                       | reopen the session (after all its env)
//
// The text of `sockets` lists those that will be closed when the rank is parked: MPI's own, and
// what registered callbacks have made. "PID WORD WORD ...": the rank's process in its own PID
// namespace, then an inode for each, with "@ADDRESS:PORT" ("@[ADDRESS]:PORT" for IPv6) behind that
// of a listening TCP socket. A connection that was accepted on one of these, or leads to one of
// another rank's, belongs to it and is not listed. Empty: not known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <expected>
#include <string_view>

#include "base/ids.h"

namespace xmpi::rank_link {

inline constexpr std::uint32_t kMagic = 0x4b4c5258;  // "XRLK"
inline constexpr std::uint16_t kVersion = 1;
inline constexpr std::size_t kHeaderSize = 72;
// One packet must fit a socket buffer several times over and a static buffer in the rank.
inline constexpr std::size_t kMessageLimit = 8192;

enum class Kind : std::uint16_t {
  kHello = 1,
  kNoticed = 2,
  kArrived = 3,
  kChecked = 4,
  kParked = 5,
  kRunning = 6,
  kResumed = 7,
  kFinalizing = 8,
  kSockets = 9,
  kNotice = 65,
  kAgree = 66,
  kCheck = 67,
  kTeardown = 68,
  kCancel = 69,
  kEnv = 70,
  kContinue = 71,
};

struct Message {
  Kind kind{};
  SlotId slot = 0;
  Epoch epoch = 0;
  MigrationId migration = 0;
  AttemptId attempt = 0;
  std::uint64_t passed = 0;     // XMPI_Quiesce calls entered
  std::uint64_t stop_call = 0;  // counted from 1
  std::uint32_t thread = 0;     // in the rank's own PID namespace
  RankId rank = 0;
  std::uint32_t version = 0;  // of libxmpi: major * 10000 + minor * 100 + patch
  std::uint32_t signal = 0;
  bool refused = false;
  bool rebuilt = false;
  std::string_view name{};  // both views point into what was decoded
  std::string_view text{};
};

inline const char* Name(Kind kind) {
  switch (kind) {
    case Kind::kHello:
      return "hello";
    case Kind::kNoticed:
      return "noticed";
    case Kind::kArrived:
      return "arrived";
    case Kind::kChecked:
      return "checked";
    case Kind::kParked:
      return "parked";
    case Kind::kRunning:
      return "running";
    case Kind::kResumed:
      return "resumed";
    case Kind::kFinalizing:
      return "finalizing";
    case Kind::kSockets:
      return "sockets";
    case Kind::kNotice:
      return "notice";
    case Kind::kAgree:
      return "agree";
    case Kind::kCheck:
      return "check";
    case Kind::kTeardown:
      return "teardown";
    case Kind::kCancel:
      return "cancel";
    case Kind::kEnv:
      return "env";
    case Kind::kContinue:
      return "continue";
  }
  return nullptr;
}

inline bool FromRank(Kind kind) { return kind < Kind::kNotice; }

namespace internal {

enum Field : unsigned {
  kMigration = 1,
  kPassed = 2,
  kStopCall = 4,
  kThread = 8,  // thread, rank, version, signal
  kRefused = 16,
  kRebuilt = 32,
  kNameField = 64,
  kText = 128,
};

inline unsigned FieldsOf(Kind kind) {
  switch (kind) {
    case Kind::kHello:
      return kThread | kText;
    case Kind::kNoticed:
    case Kind::kResumed:
      return kMigration | kPassed;
    case Kind::kArrived:
      return kMigration | kPassed | kRefused | kText;
    case Kind::kChecked:
      return kMigration | kRefused | kText;
    case Kind::kRunning:
      return kMigration | kPassed | kRebuilt;
    case Kind::kFinalizing:
      return kPassed;
    case Kind::kSockets:
      return kText;
    case Kind::kAgree:
      return kMigration | kStopCall;
    case Kind::kCancel:
      return kMigration | kText;
    case Kind::kEnv:
      return kMigration | kNameField | kText;
    case Kind::kParked:
    case Kind::kNotice:
    case Kind::kCheck:
    case Kind::kTeardown:
    case Kind::kContinue:
      return kMigration;
  }
  return 0;
}

template <class T>
T Load(const char*& at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value = static_cast<T>(value | static_cast<T>(static_cast<unsigned char>(at[i])) << (8 * i));
  at += sizeof(T);
  return value;
}

template <class T>
void Store(char*& at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) at[i] = static_cast<char>(value >> (8 * i));
  at += sizeof(T);
}

inline bool HasNul(std::string_view text) { return text.find('\0') != text.npos; }

// What is wrong with the fields of a message, or nullptr.
inline const char* Fault(const Message& m) {
  if (Name(m.kind) == nullptr) return "unknown kind";
  const unsigned fields = FieldsOf(m.kind);
  const auto carries = [fields](Field field) { return (fields & field) != 0; };
  if (carries(kMigration) != (m.migration != 0)) return "migration missing or out of place";
  if (!carries(kPassed) && m.passed != 0) return "passed out of place";
  if (carries(kStopCall) != (m.stop_call != 0)) return "stop_call missing or out of place";
  if (carries(kThread) != (m.thread != 0)) return "thread missing or out of place";
  if (carries(kThread) != (m.signal != 0)) return "signal missing or out of place";
  if (!carries(kThread) && (m.rank != 0 || m.version != 0)) return "rank or version out of place";
  if (!carries(kRefused) && m.refused) return "refused out of place";
  if (!carries(kRebuilt) && m.rebuilt) return "rebuilt out of place";
  if (carries(kNameField) == m.name.empty()) return "name missing or out of place";
  if (!carries(kText) && !m.text.empty()) return "text out of place";
  if (m.refused && m.text.empty()) return "refused without a reason";
  if (HasNul(m.name) || m.name.contains('=')) return "name is not one of an environment variable";
  if (HasNul(m.text)) return "text holds a NUL";
  return nullptr;
}

}  // namespace internal

// Writes `message` to `packet` and returns its size. What does not fit is cut from the end of the
// text, except that an `env` is then not written at all; 0 means that, or a message with a fault.
inline std::size_t Encode(const Message& message, char (&packet)[kMessageLimit]) {
  if (internal::Fault(message) != nullptr) return 0;
  const std::size_t room = kMessageLimit - kHeaderSize;
  if (message.name.size() > room) return 0;
  std::string_view text = message.text;
  if (text.size() > room - message.name.size()) {
    if (message.kind == Kind::kEnv) return 0;
    text = text.substr(0, room - message.name.size());
  }
  const std::size_t length = kHeaderSize + message.name.size() + text.size();
  char* at = packet;
  internal::Store(at, kMagic);
  internal::Store(at, kVersion);
  internal::Store(at, static_cast<std::uint16_t>(message.kind));
  internal::Store(at, static_cast<std::uint32_t>(length));
  internal::Store(at, message.slot);
  internal::Store(at, message.epoch);
  internal::Store(at, message.migration);
  internal::Store(at, message.attempt);
  internal::Store(at, message.thread);
  internal::Store(at, message.passed);
  internal::Store(at, message.stop_call);
  internal::Store(at, message.rank);
  internal::Store(at, message.version);
  internal::Store(at, message.signal);
  internal::Store(at, static_cast<std::uint16_t>(message.refused));
  internal::Store(at, static_cast<std::uint16_t>(message.rebuilt));
  internal::Store(at, static_cast<std::uint32_t>(message.name.size()));
  internal::Store(at, std::uint32_t{0});
  if (!message.name.empty()) std::memcpy(at, message.name.data(), message.name.size());
  if (!text.empty()) std::memcpy(at + message.name.size(), text.data(), text.size());
  return length;
}

// Reads one packet; the error is a fixed English text. The views point into `packet`.
inline std::expected<Message, const char*> Decode(const char* packet, std::size_t size) {
  if (size < kHeaderSize) return std::unexpected("shorter than the header");
  if (size > kMessageLimit) return std::unexpected("longer than the limit");
  const char* at = packet;
  if (internal::Load<std::uint32_t>(at) != kMagic) return std::unexpected("wrong magic");
  if (internal::Load<std::uint16_t>(at) != kVersion) return std::unexpected("other version");
  Message m;
  m.kind = static_cast<Kind>(internal::Load<std::uint16_t>(at));
  if (internal::Load<std::uint32_t>(at) != size) return std::unexpected("length is not the size");
  m.slot = internal::Load<std::uint32_t>(at);
  m.epoch = internal::Load<std::uint32_t>(at);
  m.migration = internal::Load<std::uint32_t>(at);
  m.attempt = internal::Load<std::uint32_t>(at);
  m.thread = internal::Load<std::uint32_t>(at);
  m.passed = internal::Load<std::uint64_t>(at);
  m.stop_call = internal::Load<std::uint64_t>(at);
  m.rank = internal::Load<std::uint32_t>(at);
  m.version = internal::Load<std::uint32_t>(at);
  m.signal = internal::Load<std::uint32_t>(at);
  const auto refused = internal::Load<std::uint16_t>(at);
  const auto rebuilt = internal::Load<std::uint16_t>(at);
  const auto name_size = internal::Load<std::uint32_t>(at);
  const auto reserved = internal::Load<std::uint32_t>(at);
  if (refused > 1 || rebuilt > 1) return std::unexpected("a flag is neither 0 nor 1");
  if (reserved != 0) return std::unexpected("reserved field is not zero");
  if (name_size > size - kHeaderSize) return std::unexpected("name is longer than the packet");
  m.refused = refused == 1;
  m.rebuilt = rebuilt == 1;
  m.name = std::string_view(at, name_size);
  m.text = std::string_view(at + name_size, size - kHeaderSize - name_size);
  if (const char* fault = internal::Fault(m)) return std::unexpected(fault);
  return m;
}

// The kind that a packet claims, from its first kPeekSize bytes; Kind{} when it is none of ours.
inline constexpr std::size_t kPeekSize = 8;
inline Kind PeekKind(const char* packet, std::size_t size) {
  if (size < kPeekSize) return Kind{};
  const char* at = packet;
  if (internal::Load<std::uint32_t>(at) != kMagic) return Kind{};
  if (internal::Load<std::uint16_t>(at) != kVersion) return Kind{};
  const Kind kind = static_cast<Kind>(internal::Load<std::uint16_t>(at));
  return Name(kind) == nullptr ? Kind{} : kind;
}

}  // namespace xmpi::rank_link
