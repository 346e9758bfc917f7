// The payload of a kPages chunk: a table of runs of pages of one process, and the bytes of those
// whose kind is data, perhaps compressed as a whole. Runs ascend, do not overlap, and end at their
// region's end; so does what a copy is taken from. See docs/image-stream.md.
//
//   1  encoding of the data
//   4  bytes of the data when it is not compressed
//   4  number of entries; each:
//        8  address
//        4  pages
//        1  kind; for a copy:
//             4  rank, 4 pid, 8 address of the pages to copy
//   .. data
//
// Decoding trusts nothing. Which lane, rank or process a run may belong to is the store's to judge.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "image/chunk.h"
#include "image/compression.h"
#include "image/page_hashes.h"
#include "image/pages.h"

namespace xmpi::image {

enum class PageKind : std::uint8_t {
  kData = 1,
  kZero = 2,
  kCopy = 3,  // the content of pages that came before, on the same lane
};

struct PageOrigin {
  RankId rank = 0;
  pid_t pid = 0;
  std::uint64_t address = 0;
  bool operator==(const PageOrigin&) const = default;
};

struct PageEntry {
  PageKind kind{};
  PageRun run;
  PageOrigin from;  // of a copy
  bool operator==(const PageEntry&) const = default;
};

// A chunk's payload holds the table, at most this, and the data, at most the rest.
inline constexpr std::size_t kMaxPageTableBytes = 64u << 10;
inline constexpr std::size_t kMaxPageDataBytes = kMaxPayloadBytes - kMaxPageTableBytes;

// Gathers the pages of one process for one chunk. Pages are read into Room() and stay there if they
// are sent, so that nothing is copied when all are.
class PageChunkWriter {
 public:
  PageChunkWriter();

  // Where the next pages are to be read; a multiple of kPageBytes.
  std::span<std::byte> Room();
  // Too little room is left to be worth a read.
  bool IsFull() const;
  bool empty() const { return entries_.empty(); }
  std::size_t data_bytes() const { return data_bytes_; }

  // In ascending order. `page` lies in Room(), at or behind where it is going to stay.
  void AddData(std::uint64_t address, const std::byte* page);
  void AddZero(std::uint64_t address) { Add(PageKind::kZero, address, {}); }
  void AddCopy(std::uint64_t address, const PageOrigin& from) {
    Add(PageKind::kCopy, address, from);
  }

  std::span<const std::byte> data() const;
  // The payload, valid until Clear; encoded as the compressor thinks best.
  std::span<const std::byte> Encode(Compressor* compressor);
  void Clear();

 private:
  void Add(PageKind kind, std::uint64_t address, const PageOrigin& from);

  std::vector<PageEntry> entries_;
  std::vector<std::byte> buffer_;  // room for the table, then the data
  std::vector<std::byte> encoded_;
  std::size_t data_bytes_ = 0;
};

struct PagePayload {
  std::vector<PageEntry> entries;
  std::span<const std::byte> data;  // of all data entries in order
};

// `buffer`, kMaxPageDataBytes, is where compressed data goes; other data stays in `payload`.
Result<PagePayload> DecodePages(std::span<const std::byte> payload, std::span<std::byte> buffer);

}  // namespace xmpi::image
