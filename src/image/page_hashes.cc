#include "image/page_hashes.h"

#include <algorithm>

#include "image/hash.h"

namespace xmpi::image {

bool IsWhole(const PageRun& run) {
  return run.address % kPageBytes == 0 && run.pages > 0 && run.address < kAddressLimit &&
         run.pages <= (kAddressLimit - run.address) / kPageBytes;
}

bool AreOrdered(std::span<const PageRun> runs) {
  std::uint64_t end = 0;
  for (const PageRun& run : runs) {
    if (!IsWhole(run) || run.address < end) return false;
    end = EndOf(run);
  }
  return true;
}

PageRun TakePiece(PageRun* rest, std::uint64_t most) {
  const std::uint64_t left_in_region = kPagesPerRegion - PageInRegion(rest->address);
  const PageRun piece{rest->address, std::min({rest->pages, left_in_region, most})};
  rest->address += piece.pages * kPageBytes;
  rest->pages -= piece.pages;
  return piece;
}

const Hash128& ZeroPageHash() {
  static const Hash128 hash = HashOf(std::array<std::byte, kPageBytes>{});
  return hash;
}

std::optional<Hash128> Digest(std::span<const PageRun> runs, const FindHashes& find) {
  Hasher hasher;
  std::array<std::uint64_t, 3 * kPagesPerRegion> words;
  for (PageRun rest : runs) {
    while (rest.pages > 0) {
      const PageRun piece = TakePiece(&rest);
      const PageHashes* const hashes = find(RegionOf(piece.address));
      if (hashes == nullptr) return std::nullopt;
      const std::size_t first = PageInRegion(piece.address);
      for (std::size_t i = 0; i < piece.pages; ++i) {
        if (!hashes->present[first + i]) return std::nullopt;
        words[3 * i] = piece.address + i * kPageBytes;
        words[3 * i + 1] = hashes->hashes[first + i].low;
        words[3 * i + 2] = hashes->hashes[first + i].high;
      }
      hasher.Update(std::as_bytes(std::span(words).first(3 * piece.pages)));
    }
  }
  return hasher.Digest();
}

}  // namespace xmpi::image
