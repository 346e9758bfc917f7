#include "image/chunk.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <format>

#include "base/bytes.h"

namespace xmpi::image {
namespace {

constexpr std::uint32_t kMagic = 0x474d4958;  // "XIMG"
constexpr std::size_t kHashAt = 56;

// The header seeds the payload's hash, so a bit that flips in either shows.
std::uint64_t HashOf(std::span<const std::byte, kChunkHeaderBytes> header,
                     std::span<const std::byte> payload) {
  return XXH3_64bits_withSeed(payload.data(), payload.size(), XXH3_64bits(header.data(), kHashAt));
}

std::uint64_t StoredHash(std::span<const std::byte, kChunkHeaderBytes> header) {
  return ByteReader(AsText(header.subspan(kHashAt))).Get<std::uint64_t>();
}

}  // namespace

const char* ToString(ChunkKind kind) {
  switch (kind) {
    case ChunkKind::kBegin:
      return "begin";
    case ChunkKind::kFile:
      return "file";
    case ChunkKind::kData:
      return "data";
    case ChunkKind::kManifest:
      return "manifest";
    case ChunkKind::kEnd:
      return "end";
    case ChunkKind::kHolds:
      return "holds";
    case ChunkKind::kHeld:
      return "held";
    case ChunkKind::kRefused:
      return "refused";
    case ChunkKind::kWait:
      return "wait";
    case ChunkKind::kFacts:
      return "facts";
    case ChunkKind::kFindings:
      return "findings";
    case ChunkKind::kFiles:
      return "files";
    case ChunkKind::kSights:
      return "sights";
    case ChunkKind::kPages:
      return "pages";
    case ChunkKind::kSync:
      return "sync";
  }
  return "unknown";
}

void EncodeHeader(const ChunkHeader& header, std::span<const std::byte> payload,
                  std::span<std::byte, kChunkHeaderBytes> out) {
  ByteWriter writer;
  writer.Put(kMagic);
  writer.Put(kChunkVersion);
  writer.Put(static_cast<std::uint16_t>(header.kind));
  writer.Put(header.rank);
  writer.Put(header.file);
  writer.Put(header.offset);
  writer.Put(header.length);
  writer.Put<std::uint32_t>(0);
  writer.Put(header.total);
  writer.Put<std::uint64_t>(0);
  writer.Put<std::uint64_t>(0);
  std::ranges::copy(AsBytes(writer.bytes()), out.begin());
  ByteWriter hash;
  hash.Put<std::uint64_t>(HashOf(out, payload));
  std::ranges::copy(AsBytes(hash.bytes()), out.begin() + kHashAt);
}

Result<ChunkHeader> DecodeHeader(std::span<const std::byte, kChunkHeaderBytes> bytes) {
  ByteReader in(AsText(bytes));
  const std::uint32_t magic = in.Get<std::uint32_t>();
  const std::uint16_t version = in.Get<std::uint16_t>();
  const std::uint16_t kind = in.Get<std::uint16_t>();
  ChunkHeader header;
  header.kind = static_cast<ChunkKind>(kind);
  header.rank = in.Get<std::uint32_t>();
  header.file = in.Get<std::uint32_t>();
  header.offset = in.Get<std::uint64_t>();
  header.length = in.Get<std::uint32_t>();
  const std::uint32_t reserved = in.Get<std::uint32_t>();
  header.total = in.Get<std::uint64_t>();
  if (magic != kMagic) return Fail(ErrorCode::kProtocol, "not a chunk of an image");
  if (version != kChunkVersion) {
    return Fail(ErrorCode::kProtocol,
                std::format("image chunk of version {}, ours is {}", version, kChunkVersion));
  }
  if (std::string_view(ToString(header.kind)) == "unknown") {
    return Fail(ErrorCode::kProtocol, std::format("image chunk of unknown kind {}", kind));
  }
  if (header.length > kMaxPayloadBytes || reserved != 0 || in.Get<std::uint64_t>() != 0 ||
      in.Get<std::uint64_t>() != 0) {
    return Fail(ErrorCode::kProtocol, "malformed header of an image chunk");
  }
  return header;
}

Result<> CheckChunk(std::span<const std::byte, kChunkHeaderBytes> header,
                    std::span<const std::byte> payload) {
  if (StoredHash(header) == HashOf(header, payload)) return {};
  return Fail(ErrorCode::kUnreachable, "an image chunk was damaged on the way");
}

Result<> WriteChunk(const WriteAll& write, const ChunkHeader& header,
                    std::span<const std::byte> payload) {
  std::array<std::byte, kChunkHeaderBytes> bytes;
  EncodeHeader(header, payload, bytes);
  XMPI_RETURN_IF_ERROR(write(bytes));
  return payload.empty() ? Result<>{} : write(payload);
}

Result<Chunk> ReadChunk(const ReadAll& read, std::span<std::byte> buffer) {
  std::array<std::byte, kChunkHeaderBytes> bytes;
  XMPI_RETURN_IF_ERROR(read(bytes));
  XMPI_ASSIGN_OR_RETURN(const ChunkHeader header, DecodeHeader(bytes));
  const std::span<std::byte> payload = buffer.first(header.length);
  if (!payload.empty()) XMPI_RETURN_IF_ERROR(read(payload));
  XMPI_RETURN_IF_ERROR(CheckChunk(bytes, payload));
  return Chunk{header, payload};
}

std::string EncodeBegin(const Begin& begin) {
  ByteWriter out;
  out.Put(begin.stream.slot);
  out.Put(begin.stream.epoch);
  out.Put(begin.stream.migration);
  out.Put(begin.stream.attempt);
  out.Put(begin.lane);
  out.Put(begin.lanes);
  return out.Take();
}

Result<Begin> DecodeBegin(std::span<const std::byte> payload) {
  ByteReader in(AsText(payload));
  Begin begin;
  begin.stream.slot = in.Get<std::uint32_t>();
  begin.stream.epoch = in.Get<std::uint32_t>();
  begin.stream.migration = in.Get<std::uint32_t>();
  begin.stream.attempt = in.Get<std::uint32_t>();
  begin.lane = in.Get<std::uint16_t>();
  begin.lanes = in.Get<std::uint16_t>();
  if (!in.AtEnd() || begin.lanes > kMaxLanes || begin.lane > begin.lanes)
    return Fail(ErrorCode::kProtocol, "malformed begin of an image stream");
  return begin;
}

}  // namespace xmpi::image
