// Frames: what runs over an authenticated connection between launcher and proxy. A frame is a
// fixed header and a payload; the format is written down in docs/protocol.md. TLS guards the
// bytes, so there is no checksum here. FrameDecoder never trusts a length before it is checked
// against the limit of the frame's kind, and never allocates ahead of the bytes that came.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace xmpi::wire {

inline constexpr std::uint8_t kLinkVersion = 1;
inline constexpr std::size_t kFrameHeaderBytes = 16;

enum class FrameKind : std::uint8_t {
  kHello = 1,    // first on every connection, from both ends; number: the link's session
  kControl = 2,  // a serialized Envelope; number: its place among control messages, from 1
  kStdio = 3,    // a serialized Envelope of stdio; number: its place among those, from 1
  kAck = 4,      // what the sender has of the peer's messages
  kPing = 5,     // number: chosen by the sender
  kPong = 6,     // the answer; number: the ping's
  kBye = 7,      // the sender will neither send nor accept more; payload: why
};

struct Frame {
  FrameKind kind = FrameKind::kHello;
  std::uint64_t number = 0;
  std::string payload;
};

// The largest payload of a kind.
std::size_t PayloadLimit(FrameKind kind);

void AppendFrame(FrameKind kind, std::uint64_t number, std::string_view payload, std::string* out);

// The payload of hello and ack: how far the sender has followed the peer.
struct Received {
  std::uint64_t control = 0;     // highest control number received in order
  std::uint64_t stdio = 0;       // highest stdio number received in order
  std::uint64_t stdio_done = 0;  // highest stdio number whose bytes have been written out
  bool operator==(const Received&) const = default;
};
std::string EncodeReceived(const Received& received);
Result<Received> DecodeReceived(std::string_view payload);

// Cuts a byte stream into frames. After an Error every further call gives the same Error.
class FrameDecoder {
 public:
  void Feed(std::string_view bytes) { buffer_.append(bytes); }
  // The next whole frame; nothing when more bytes are needed.
  Result<std::optional<Frame>> Next();

 private:
  std::string buffer_;
  std::size_t consumed_ = 0;
  std::optional<Error> error_;
};

}  // namespace xmpi::wire
