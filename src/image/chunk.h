// The image connection's format: a stream of chunks, each a fixed 64-byte little-endian header and
// up to 1 MiB of payload. The same format goes both ways; see docs/image-stream.md.
//
//   offset size
//        0    4  magic "XIMG"
//        4    2  version, 1
//        6    2  kind
//        8    4  rank
//       12    4  file     number of the file within the rank's image, 0: the manifest; kPages: a PID
//       16    8  offset   of the payload in the file; kPages: the chunk's number on its lane
//       24    4  length   of the payload
//       28    4  reserved, 0
//       32    8  total    kFile, kManifest: the file's length; kEnd: all sent since the dump began
//       40   16  reserved, 0
//       56    8  XXH3-64 over the header up to here and the payload
//
// A chunk whose hash does not check is kUnreachable, as a connection that broke; any other that is
// not as it should be is kProtocol. Either way the connection is closed, and what was accepted
// before stays held. Nothing here does IO; ReadChunk and WriteChunk go through the caller's
// functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/ids.h"

namespace xmpi::image {

enum class ChunkKind : std::uint16_t {
  kBegin = 1,  // source, first on every connection: which stream and which lane this is
  kFile = 2,   // source: file `file` of `rank` has the name in the payload, and `total` bytes
  kData = 3,   // source: bytes of a file
  kManifest =
      4,         // source: `total` bytes of manifest follow as kData of file 0; payload: their hash
  kEnd = 5,      // source: nothing follows
  kHolds = 6,    // target, to kBegin: what it has, see Assembler::Holds and PageStore::Open
  kHeld = 7,     // target: every rank's image is here and verified
  kRefused = 8,  // target: the stream is not acceptable; payload: why
  kWait = 9,     // source: the next image is still being made; keeps the connection from silence
  kFacts = 10,   // source: a piece of what it tells of itself; see image/message.h
  kFindings = 11,  // target: a piece of its answer to that
  kFiles = 12,     // source: what ranks hold open; payload: EncodeHeldFiles
  kSights = 13,    // target, to kFiles: what it sees under those names; payload: EncodeSights
  kPages = 14,     // source, on a lane: pages of process `file` of `rank`; see image/page_chunk.h
  kSync = 15,      // source, on a lane: to be answered by kHolds once all before it is taken in
};

const char* ToString(ChunkKind kind);  // as docs/image-stream.md calls it; "unknown" else

inline constexpr std::size_t kChunkHeaderBytes = 64;
inline constexpr std::size_t kMaxPayloadBytes = 1u << 20;
inline constexpr std::uint16_t kChunkVersion = 1;

struct ChunkHeader {
  ChunkKind kind{};
  RankId rank = 0;
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
  std::uint64_t total = 0;
  bool operator==(const ChunkHeader&) const = default;
};

// The payload is not owned: it lives in the reader's or the source's buffer until the next chunk.
struct Chunk {
  ChunkHeader header;
  std::span<const std::byte> payload;
};

// `header.length` must be the payload's size; fills `out`, 64 bytes.
void EncodeHeader(const ChunkHeader& header, std::span<const std::byte> payload,
                  std::span<std::byte, kChunkHeaderBytes> out);
// Everything but the checksum, which needs the payload: the caller reads `length` bytes next.
Result<ChunkHeader> DecodeHeader(std::span<const std::byte, kChunkHeaderBytes> bytes);
Result<> CheckChunk(std::span<const std::byte, kChunkHeaderBytes> header,
                    std::span<const std::byte> payload);

// Blocking IO of the caller: all of the span, or an error. A closed connection is kUnreachable.
using WriteAll = std::function<Result<>(std::span<const std::byte>)>;
using ReadAll = std::function<Result<>(std::span<std::byte>)>;

Result<> WriteChunk(const WriteAll& write, const ChunkHeader& header,
                    std::span<const std::byte> payload);
// `buffer` holds kMaxPayloadBytes and is what the chunk's payload points into.
Result<Chunk> ReadChunk(const ReadAll& read, std::span<std::byte> buffer);

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
inline std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Which stream this is. The target compares it with what it was told to expect before it takes a
// byte.
struct StreamId {
  SlotId slot = 0;
  Epoch epoch = 0;
  MigrationId migration = 0;
  AttemptId attempt = 0;
  bool operator==(const StreamId&) const = default;
};

// A transfer has one connection for its files, control, and so many more for pages: lanes.
inline constexpr std::uint16_t kControl = 0;
inline constexpr std::uint16_t kMaxLanes = 64;

// The payload of kBegin: which connection of which stream this is.
struct Begin {
  StreamId stream;
  std::uint16_t lane = kControl;  // else 1..lanes
  std::uint16_t lanes = 0;
  bool operator==(const Begin&) const = default;
};
std::string EncodeBegin(const Begin& begin);
Result<Begin> DecodeBegin(std::span<const std::byte> payload);

}  // namespace xmpi::image
