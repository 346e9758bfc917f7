// What both ends know of pages without their bytes: which there are in a region, their hashes, and
// the digest of a process's memory made of them. Also the arithmetic of pages and regions. Values
// only.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "image/names.h"
#include "image/pages.h"

namespace xmpi::image {

inline constexpr std::size_t kPagesPerRegion = kRegionBytes / kPageBytes;
// Above what any process can address, far from where sums overflow.
inline constexpr std::uint64_t kAddressLimit = 1ull << 56;

inline std::uint64_t RegionOf(std::uint64_t address) { return address / kRegionBytes; }
inline std::size_t PageInRegion(std::uint64_t address) {
  return static_cast<std::size_t>(address % kRegionBytes / kPageBytes);
}
inline std::uint64_t EndOf(const PageRun& run) { return run.address + run.pages * kPageBytes; }

// A region belongs to exactly one of the lanes 1..lanes: versions of a page never overtake another.
inline unsigned LaneOf(std::uint64_t region, unsigned lanes) {
  return 1 + static_cast<unsigned>(region % lanes);
}

// Aligned, not empty and within what can be addressed.
bool IsWhole(const PageRun& run);
// Each is whole, and they ascend without touching twice.
bool AreOrdered(std::span<const PageRun> runs);
// Cuts the pages of the first region, at most `most`, off a run that is not empty.
PageRun TakePiece(PageRun* rest, std::uint64_t most = kPagesPerRegion);

struct PageHashes {
  std::bitset<kPagesPerRegion> present;
  std::array<Hash128, kPagesPerRegion> hashes;  // of those that are present

  bool Has(std::size_t page, const Hash128& hash) const {
    return present[page] && hashes[page] == hash;
  }
  void Set(std::size_t page, const Hash128& hash) {
    present.set(page);
    hashes[page] = hash;
  }
};

const Hash128& ZeroPageHash();

// XXH3-128 over the address and the hash of every page, in order: what a TaskMemory's digest is.
// `find` gives a region's hashes, valid until it is called again, or nullptr. Nothing when a page
// is not present.
using FindHashes = std::function<const PageHashes*(std::uint64_t region)>;
std::optional<Hash128> Digest(std::span<const PageRun> runs, const FindHashes& find);

}  // namespace xmpi::image
