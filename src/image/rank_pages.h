// RankPages: the pages of one rank as the target holds them, for the store that fills it and for
// whoever takes them out. One lock for its books; bytes are copied outside of it, which is right
// while each region is filled by one thread, its lane's.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>

#include "base/error.h"
#include "base/ids.h"
#include "image/page_hashes.h"
#include "image/pages.h"
#include "image/region_memory.h"

namespace xmpi::image {

// What all ranks of a store may cost together.
class PageBudget {
 public:
  explicit PageBudget(std::uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  Result<> Take(std::uint64_t bytes);
  void Give(std::uint64_t bytes) { used_bytes_ -= bytes; }
  std::uint64_t used_bytes() const { return used_bytes_; }

 private:
  std::uint64_t limit_bytes_;
  std::atomic<std::uint64_t> used_bytes_ = 0;
};

class RankPages : public StoredPages {
 public:
  RankPages(RankId rank, std::shared_ptr<RegionPool> pool, std::shared_ptr<PageBudget> budget);
  ~RankPages() override;

  Result<std::size_t> Read(pid_t pid, std::uint64_t address, std::span<std::byte> out) override;
  Found Find(pid_t pid, std::uint64_t address, std::uint64_t most) override;
  void Release(pid_t pid, PageRun run) override;

  // Each within one region. `bytes` are all of the run's, `hashes` one for each page. kProtocol
  // once the pages were found right.
  Result<> PutData(pid_t pid, const PageRun& run, std::span<const std::byte> bytes,
                   std::span<const Hash128> hashes);
  Result<> PutZero(pid_t pid, const PageRun& run);

  // Whether these are the pages, all of them; then nothing can be put any more.
  Result<> Verify(std::span<const TaskMemory> memory);
  void Prune(std::span<const TaskMemory> memory);
  void Drop();

 private:
  struct Region {
    PageHashes hashes;
    std::bitset<kPagesPerRegion> data;  // of those that are present; the others are zero
    RegionMemory memory;                // none before there is data
  };
  using Regions = std::unordered_map<std::uint64_t, std::shared_ptr<Region>>;

  // With the lock held.
  std::shared_ptr<Region> FindRegion(pid_t pid, std::uint64_t address) const;
  Result<std::shared_ptr<Region>> MakeRegion(pid_t pid, std::uint64_t address);
  Result<> TakeRoom(Region& region, const PageRun& run);
  void ReleaseIn(Region& region, std::size_t first, std::size_t pages);
  void DropTask(std::map<pid_t, Regions>::iterator task);
  void PruneTask(Regions* regions, std::span<const PageRun> runs);

  RankId rank_;
  std::shared_ptr<RegionPool> pool_;
  std::shared_ptr<PageBudget> budget_;
  mutable std::mutex mutex_;
  bool verified_ = false;
  std::map<pid_t, Regions> tasks_;
};

}  // namespace xmpi::image
