#include "wire/frame.h"

#include <format>

#include "base/check.h"
#include "base/limits.h"

namespace xmpi::wire {
namespace {

constexpr std::size_t kReceivedBytes = 24;

void AppendLittleEndian(std::uint64_t value, std::size_t bytes, std::string* out) {
  for (std::size_t i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

std::uint64_t LittleEndian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

bool HasFixedLength(FrameKind kind) {
  return kind != FrameKind::kControl && kind != FrameKind::kStdio && kind != FrameKind::kBye;
}

// length(4) version(1) kind(1) zero(2) number(8)
struct Header {
  std::size_t length = 0;
  FrameKind kind = FrameKind::kHello;
  std::uint64_t number = 0;
};

Result<Header> DecodeHeader(std::string_view bytes) {
  const auto version = static_cast<std::uint8_t>(bytes[4]);
  if (version != kLinkVersion) {
    return Fail(ErrorCode::kProtocol,
                std::format("frame of link version {}, this program speaks {}: install the same "
                            "xmpi on every node",
                            version, kLinkVersion));
  }
  const auto kind = static_cast<std::uint8_t>(bytes[5]);
  if (kind < static_cast<std::uint8_t>(FrameKind::kHello) ||
      kind > static_cast<std::uint8_t>(FrameKind::kBye)) {
    return Fail(ErrorCode::kProtocol, std::format("frame of unknown kind {}", kind));
  }
  if (LittleEndian(bytes.substr(6, 2)) != 0) {
    return Fail(ErrorCode::kProtocol, "frame with nonzero reserved bytes");
  }
  Header header{LittleEndian(bytes.substr(0, 4)), static_cast<FrameKind>(kind),
                LittleEndian(bytes.substr(8, 8))};
  const std::size_t limit = PayloadLimit(header.kind);
  if (header.length > limit || (HasFixedLength(header.kind) && header.length != limit)) {
    return Fail(ErrorCode::kProtocol, std::format("frame of kind {} with {} bytes, limit {}", kind,
                                                  header.length, limit));
  }
  return header;
}

}  // namespace

std::size_t PayloadLimit(FrameKind kind) {
  switch (kind) {
    case FrameKind::kHello:
    case FrameKind::kAck:
      return kReceivedBytes;
    case FrameKind::kControl:
      return limits::kControlMessageBytes;
    case FrameKind::kStdio:
      return limits::kStdioMessageBytes + limits::kStdioEnvelopeBytes;
    case FrameKind::kPing:
    case FrameKind::kPong:
      return 0;
    case FrameKind::kBye:
      return limits::kReasonBytes;
  }
  return 0;
}

void AppendFrame(FrameKind kind, std::uint64_t number, std::string_view payload, std::string* out) {
  XMPI_CHECK(payload.size() <= PayloadLimit(kind));
  AppendLittleEndian(payload.size(), 4, out);
  out->push_back(static_cast<char>(kLinkVersion));
  out->push_back(static_cast<char>(kind));
  out->append(2, '\0');
  AppendLittleEndian(number, 8, out);
  out->append(payload);
}

std::string EncodeReceived(const Received& received) {
  std::string out;
  AppendLittleEndian(received.control, 8, &out);
  AppendLittleEndian(received.stdio, 8, &out);
  AppendLittleEndian(received.stdio_done, 8, &out);
  return out;
}

Result<Received> DecodeReceived(std::string_view payload) {
  if (payload.size() != kReceivedBytes) {
    return Fail(ErrorCode::kProtocol,
                std::format("acknowledgement of {} bytes, not {}", payload.size(), kReceivedBytes));
  }
  return Received{LittleEndian(payload.substr(0, 8)), LittleEndian(payload.substr(8, 8)),
                  LittleEndian(payload.substr(16, 8))};
}

Result<std::optional<Frame>> FrameDecoder::Next() {
  if (error_) return std::unexpected(*error_);
  const std::string_view rest = std::string_view(buffer_).substr(consumed_);
  if (rest.size() < kFrameHeaderBytes) return std::nullopt;
  auto header = DecodeHeader(rest.substr(0, kFrameHeaderBytes));
  if (!header) {
    error_ = header.error();
    buffer_ = {};
    return std::unexpected(*error_);
  }
  if (rest.size() - kFrameHeaderBytes < header->length) return std::nullopt;
  Frame frame{header->kind, header->number,
              std::string(rest.substr(kFrameHeaderBytes, header->length))};
  consumed_ += kFrameHeaderBytes + header->length;
  if (consumed_ == buffer_.size() || consumed_ >= (std::size_t{1} << 20)) {
    buffer_.erase(0, consumed_);
    consumed_ = 0;
  }
  // One huge message must not pin its memory for the rest of the link's life.
  if (buffer_.empty() && buffer_.capacity() > (std::size_t{1} << 20)) buffer_ = {};
  return frame;
}

}  // namespace xmpi::wire
