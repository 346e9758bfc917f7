#include "image/ranges.h"

#include <iterator>

#include "base/bytes.h"
#include "image/chunk.h"

namespace xmpi::image {
namespace {

constexpr std::size_t kMaxHoldingsRanks = 4096;
constexpr std::size_t kMaxHoldingsFiles = 65536;

bool GetRanges(ByteReader& in, Ranges* ranges) {
  for (std::uint32_t left = in.GetCount(kMaxIntervals, 16); left > 0; --left) {
    const std::uint64_t begin = in.Get<std::uint64_t>();
    const std::uint64_t end = in.Get<std::uint64_t>();
    if (!ranges->Add(begin, end)) return false;
  }
  return in.ok();
}

}  // namespace

bool Ranges::Add(std::uint64_t begin, std::uint64_t end) {
  if (begin >= end) return false;
  auto next = intervals_.lower_bound(begin);
  if (next != intervals_.end() && next->first < end) return false;
  if (next != intervals_.begin()) {
    const auto before = std::prev(next);
    if (before->second > begin) return false;
    if (before->second == begin) {
      begin = before->first;
      intervals_.erase(before);
    }
  }
  if (next != intervals_.end() && next->first == end) {
    end = next->second;
    intervals_.erase(next);
  }
  intervals_[begin] = end;
  return true;
}

bool Ranges::Covers(std::uint64_t begin, std::uint64_t end) const {
  return begin >= end || NextMissing(begin) >= end;
}

std::uint64_t Ranges::NextMissing(std::uint64_t from) const {
  auto after = intervals_.upper_bound(from);
  if (after == intervals_.begin()) return from;
  const std::uint64_t end = std::prev(after)->second;
  return end > from ? end : from;
}

std::uint64_t Ranges::NextHeld(std::uint64_t from, std::uint64_t limit) const {
  const auto next = intervals_.lower_bound(from);
  return next == intervals_.end() || next->first > limit ? limit : next->first;
}

std::string EncodeHoldings(const Holdings& holdings) {
  ByteWriter out;
  out.Put(static_cast<std::uint32_t>(holdings.size()));
  for (const auto& [rank, held] : holdings) {
    out.Put(rank);
    out.Put(static_cast<std::uint8_t>(held.whole));
    out.Put(static_cast<std::uint32_t>(held.files.size()));
    for (const auto& [file, ranges] : held.files) {
      out.Put(file);
      out.Put(static_cast<std::uint32_t>(ranges.size()));
      for (const auto& [begin, end] : ranges.intervals()) {
        out.Put(begin);
        out.Put(end);
      }
    }
  }
  return out.Take();
}

Result<Holdings> DecodeHoldings(std::span<const std::byte> payload) {
  ByteReader in(AsText(payload));
  Holdings holdings;
  bool good = true;
  for (std::uint32_t ranks = in.GetCount(kMaxHoldingsRanks, 9); ranks > 0 && good; --ranks) {
    const RankId rank = in.Get<std::uint32_t>();
    RankHoldings& held = holdings[rank];
    held.whole = in.Get<std::uint8_t>() == 1;
    for (std::uint32_t left = in.GetCount(kMaxHoldingsFiles, 8); left > 0 && good; --left) {
      const std::uint32_t file = in.Get<std::uint32_t>();
      good = GetRanges(in, &held.files[file]);
    }
  }
  if (!good || !in.AtEnd()) return Fail(ErrorCode::kProtocol, "malformed list of what is held");
  return holdings;
}

}  // namespace xmpi::image
