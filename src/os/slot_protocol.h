// The messages between a Slot and its init, over a SOCK_SEQPACKET pair. Both ends are of one build
// and one machine, so there is no version; the formats are still parsed with bounds.
//
//   proxy -> init   Request{id, kind}; kSpawn carries a memfd with the encoded request and then the
//                   descriptors it names by index, kAdopt the PID as its body; kHold a descriptor,
//                   kLetGo the id of a kHold: neither is answered
//   init -> proxy   Event{kind, id, pid, value, stage, text} and at most one descriptor
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "os/slot.h"

namespace xmpi::os {

enum class RequestKind : std::uint32_t { kSpawn = 1, kAdopt = 2, kHold = 3, kLetGo = 4 };

enum class EventKind : std::uint32_t {
  kForked = 1,   // from the process between: a pidfd of the init
  kHello = 2,    // the slot is set up; a descriptor of its /proc; text: what is lost, by lines
  kFailed = 3,   // it could not be set up; text: why
  kStarted = 4,  // answer to a request; a pidfd
  kRefused = 5,  // answer to a request; value: errno, stage: at what
  kExited = 6,   // value: wait status
};

// What a new process was doing when it failed; the words are in Describe.
enum class SpawnStage : std::uint32_t {
  kNone,
  kRequest,
  kFork,
  kTimeNamespace,
  kPidHint,
  kCpus,
  kCwd,
  kOpen,
  kDescriptors,
  kExec,
  kAdopt,
};
std::string Describe(SpawnStage stage, const SpawnRequest& request);

struct SlotEvent {
  EventKind kind{};
  std::uint32_t id = 0;
  pid_t pid = 0;
  std::int32_t value = 0;
  SpawnStage stage = SpawnStage::kNone;
  std::string text = {};
};

std::string EncodeEvent(const SlotEvent& event);
Result<SlotEvent> DecodeEvent(std::string_view bytes);

// The descriptors of `request.fds` with an fd travel beside, in order.
std::string EncodeSpawn(const SpawnRequest& request);
Result<SpawnRequest> DecodeSpawn(std::string_view bytes);

inline constexpr std::size_t kMaxSlotMessageBytes = 64u << 10;
inline constexpr std::size_t kMaxSlotFds = 128;  // the kernel's SCM_MAX_FD is 253

// One message with descriptors, whole or not at all. kTimeout means: the socket is full.
Result<> SendMessage(int socket, std::string_view bytes, const std::vector<int>& fds, int flags);
// nullopt-like: an empty `bytes` with `closed` set is the end of the stream.
struct Message {
  std::string bytes;
  std::vector<Fd> fds;
  bool closed = false;
  bool would_block = false;
};
Result<Message> ReceiveMessage(int socket, int flags);

}  // namespace xmpi::os
