#include "criu/missing_pages.h"

#include <algorithm>
#include <iterator>

namespace xmpi::criu {

using image::kPageBytes;

MissingRun MissingRun::Part(std::uint64_t begin, std::uint64_t end) const {
  begin = std::max(begin, address);
  end = std::min(end, address + pages * kPageBytes);
  if (begin >= end) return {};
  return {begin, (end - begin) / kPageBytes, pid, origin + (begin - address)};
}

void MissingPages::Add(const MissingRun& run) {
  if (run.pages > 0) runs_[run.address] = run;
}

std::vector<MissingRun> MissingPages::Cut(std::uint64_t begin, std::uint64_t end) {
  std::vector<MissingRun> cut;
  auto at = runs_.upper_bound(begin);
  if (at != runs_.begin()) --at;
  while (at != runs_.end() && at->first < end) {
    const MissingRun run = at->second;
    const MissingRun part = run.Part(begin, end);
    ++at;
    if (part.pages == 0) continue;
    runs_.erase(run.address);
    Add(run.Part(run.address, begin));
    Add(run.Part(end, UINT64_MAX));
    cut.push_back(part);
  }
  return cut;
}

void MissingPages::Move(std::uint64_t from, std::uint64_t to, std::uint64_t bytes) {
  for (MissingRun run : Cut(from, from + bytes)) {
    run.address = to + (run.address - from);
    Add(run);
  }
}

std::optional<MissingRun> MissingPages::At(std::uint64_t address) const {
  const auto after = runs_.upper_bound(address);
  if (after == runs_.begin()) return std::nullopt;
  const MissingRun part = std::prev(after)->second.Part(address, UINT64_MAX);
  return part.pages > 0 ? std::optional(part) : std::nullopt;
}

std::optional<MissingRun> MissingPages::Next(std::uint64_t address) const {
  if (const auto here = At(address)) return here;
  auto next = runs_.lower_bound(address);
  if (next == runs_.end()) next = runs_.begin();
  return next == runs_.end() ? std::nullopt : std::optional(next->second);
}

std::vector<MissingRun> MissingPages::All() const {
  std::vector<MissingRun> all;
  for (const auto& [address, run] : runs_) all.push_back(run);
  return all;
}

}  // namespace xmpi::criu
