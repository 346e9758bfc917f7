// For tests of pages: processes' memory made of values, and what it must look like afterwards.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "image/page_hashes.h"
#include "image/page_lane.h"
#include "image/pages.h"

namespace xmpi::image {

using Page = std::array<std::byte, kPageBytes>;

// A page of content that `seed` stands for: 0 is zero; even ones do not compress, odd ones do.
inline Page PageOf(std::uint64_t seed) {
  Page page{};
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u;
  for (std::size_t i = 0; seed != 0 && i < kPageBytes; i += 8) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const std::uint64_t word = seed % 2 == 0 ? state ^ state >> 29 : seed;
    std::memcpy(page.data() + i, &word, 8);
  }
  return page;
}

// The memory of one rank's processes, by address.
class FakeMemory : public PageSource {
 public:
  using Pages = std::map<std::uint64_t, Page>;
  std::map<pid_t, Pages> tasks;

  Result<std::size_t> Read(pid_t pid, std::uint64_t address, std::span<std::byte> out) override {
    const auto task = tasks.find(pid);
    if (task == tasks.end()) return Fail("no such process");
    std::size_t got = 0;
    for (; got < out.size(); got += kPageBytes) {
      const auto page = task->second.find(address + got);
      if (page == task->second.end()) break;
      std::ranges::copy(page->second, out.begin() + static_cast<std::ptrdiff_t>(got));
    }
    return got;
  }

  std::vector<PageRun> Runs(pid_t pid) const {
    std::vector<PageRun> runs;
    for (const auto& [address, page] : tasks.at(pid)) {
      if (!runs.empty() && EndOf(runs.back()) == address) {
        ++runs.back().pages;
      } else {
        runs.push_back({address, 1});
      }
    }
    return runs;
  }
};

using Lanes = std::vector<std::unique_ptr<PageLane>>;

inline Lanes MakeLanes(unsigned count, std::optional<Encoding> encoding = {}) {
  Lanes lanes;
  for (unsigned lane = 1; lane <= count; ++lane)
    lanes.push_back(std::make_unique<PageLane>(lane, count, encoding));
  return lanes;
}

// What the source's manifest says of the memory, once all lanes have sent it.
inline std::vector<TaskMemory> MemoryOf(const Lanes& lanes, RankId rank, const FakeMemory& memory) {
  std::vector<TaskMemory> tasks;
  for (const auto& [pid, pages] : memory.tasks) {
    const std::vector<PageRun> runs = memory.Runs(pid);
    tasks.push_back({pid, runs, DigestOf(lanes, rank, pid, runs).value_or(Hash128{})});
  }
  return tasks;
}

// Whether the store has exactly these pages of a rank.
inline bool IsSame(StoredPages& stored, FakeMemory& memory) {
  for (auto& [pid, pages] : memory.tasks) {
    for (const auto& [address, page] : pages) {
      Page got;
      const Result<std::size_t> read = stored.Read(pid, address, got);
      if (!read || *read != kPageBytes || got != page) return false;
    }
  }
  return true;
}

}  // namespace xmpi::image
