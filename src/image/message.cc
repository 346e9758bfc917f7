#include "image/message.h"

#include <algorithm>
#include <format>
#include <vector>

namespace xmpi::image {

Result<> SendMessage(const WriteAll& write, ChunkKind kind, std::string_view text) {
  if (text.size() > kMaxMessageBytes)
    return Fail(std::format("{} bytes are too many for one message", text.size()));
  std::size_t offset = 0;
  do {
    const std::string_view part = text.substr(offset, kMaxPayloadBytes);
    XMPI_RETURN_IF_ERROR(WriteChunk(write,
                                    {.kind = kind,
                                     .offset = offset,
                                     .length = static_cast<std::uint32_t>(part.size()),
                                     .total = text.size()},
                                    AsBytes(part)));
    offset += part.size();
  } while (offset < text.size());
  return {};
}

Result<bool> MessageReader::Accept(const Chunk& chunk) {
  const ChunkHeader& header = chunk.header;
  const bool fits = header.total <= kMaxMessageBytes && header.offset == text_.size() &&
                    chunk.payload.size() <= header.total - std::min(header.total, header.offset) &&
                    (!chunk.payload.empty() || header.total == 0);
  if (!fits) return Fail(ErrorCode::kProtocol, "a message on an image connection is out of order");
  text_ += AsText(chunk.payload);
  return text_.size() == header.total;
}

Result<std::string> ReceiveMessage(const ReadAll& read, ChunkKind kind) {
  std::vector<std::byte> buffer(kMaxPayloadBytes);
  MessageReader reader;
  for (;;) {
    XMPI_ASSIGN_OR_RETURN(const Chunk chunk, ReadChunk(read, buffer));
    if (chunk.header.kind == ChunkKind::kRefused)
      return Fail(ErrorCode::kRefused, std::string(AsText(chunk.payload)));
    if (chunk.header.kind != kind)
      return Fail(ErrorCode::kProtocol, std::format("{} instead of {} on an image connection",
                                                    ToString(chunk.header.kind), ToString(kind)));
    XMPI_ASSIGN_OR_RETURN(const bool whole, reader.Accept(chunk));
    if (whole) return reader.text();
  }
}

}  // namespace xmpi::image
