// Ranges: a set of byte offsets as sorted, disjoint, non-touching intervals; and Holdings, what the
// target of an image stream has got, with its encoding for the kHolds chunk. Values only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "base/error.h"
#include "base/ids.h"

namespace xmpi::image {

class Ranges {
 public:
  // False when a byte of it is in the set already; then nothing changes.
  bool Add(std::uint64_t begin, std::uint64_t end);
  bool Covers(std::uint64_t begin, std::uint64_t end) const;
  // The first byte at or after `from` that is not in the set.
  std::uint64_t NextMissing(std::uint64_t from) const;
  // The begin of the first interval that starts at or after `from`, or `limit`.
  std::uint64_t NextHeld(std::uint64_t from, std::uint64_t limit) const;
  std::size_t size() const { return intervals_.size(); }
  const std::map<std::uint64_t, std::uint64_t>& intervals() const { return intervals_; }
  bool operator==(const Ranges&) const = default;

 private:
  std::map<std::uint64_t, std::uint64_t> intervals_;  // begin -> end
};

struct RankHoldings {
  bool whole = false;                     // verified; nothing of it is to be sent
  std::map<std::uint32_t, Ranges> files;  // by number; 0 is the manifest
  bool operator==(const RankHoldings&) const = default;
};
using Holdings = std::map<RankId, RankHoldings>;

// A file may be held in at most this many pieces: a source sends in order, so more than a few means
// that somebody plays games with our memory.
inline constexpr std::size_t kMaxIntervals = 1024;

std::string EncodeHoldings(const Holdings& holdings);
Result<Holdings> DecodeHoldings(std::span<const std::byte> payload);

}  // namespace xmpi::image
