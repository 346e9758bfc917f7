#include "image/rank_pages.h"

#include <algorithm>
#include <cstring>
#include <format>
#include <utility>

namespace xmpi::image {
namespace {

// How many bits from `first` on are as that one is, at most `most`.
template <class Bits>
std::size_t Alike(const Bits& bits, std::size_t first, std::size_t most) {
  std::size_t count = 1;
  while (count < most && bits[first + count] == bits[first]) ++count;
  return count;
}

}  // namespace

Result<> PageBudget::Take(std::uint64_t bytes) {
  std::uint64_t used = used_bytes_;
  do {
    if (bytes > limit_bytes_ - std::min(limit_bytes_, used))
      return Fail(
          ErrorCode::kRefused,
          std::format("the ranks' memory is larger than the {} bytes that there is room for",
                      limit_bytes_));
  } while (!used_bytes_.compare_exchange_weak(used, used + bytes));
  return {};
}

RankPages::RankPages(RankId rank, std::shared_ptr<RegionPool> pool,
                     std::shared_ptr<PageBudget> budget)
    : rank_(rank), pool_(std::move(pool)), budget_(std::move(budget)) {}

RankPages::~RankPages() { Drop(); }

Result<std::size_t> RankPages::Read(pid_t pid, std::uint64_t address, std::span<std::byte> out) {
  std::size_t got = 0;
  while (got < out.size()) {
    const Found found = Find(pid, address + got, (out.size() - got) / kPageBytes);
    if (found.kind == Kind::kAbsent) break;
    const std::span<std::byte> part = out.subspan(got, found.pages * kPageBytes);
    if (found.kind == Kind::kZero) {
      std::ranges::fill(part, std::byte{0});
    } else {
      std::memcpy(part.data(), found.data, part.size());
    }
    got += part.size();
  }
  return got;
}

StoredPages::Found RankPages::Find(pid_t pid, std::uint64_t address, std::uint64_t most) {
  const std::size_t page = PageInRegion(address);
  const std::size_t limit =
      std::max<std::uint64_t>(1, std::min<std::uint64_t>(most, kPagesPerRegion - page));
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<Region> region = FindRegion(pid, address);
  if (!region) return {.kind = Kind::kAbsent, .pages = limit};
  const std::size_t as_present = Alike(region->hashes.present, page, limit);
  if (!region->hashes.present[page]) return {.kind = Kind::kAbsent, .pages = as_present};
  const std::size_t pages = Alike(region->data, page, as_present);
  if (!region->data[page]) return {.kind = Kind::kZero, .pages = pages};
  return {.kind = Kind::kData, .pages = pages, .data = region->memory.Page(page)};
}

void RankPages::Release(pid_t pid, PageRun run) {
  const std::lock_guard lock(mutex_);
  while (run.pages > 0) {
    const PageRun piece = TakePiece(&run);
    const std::shared_ptr<Region> region = FindRegion(pid, piece.address);
    if (!region) continue;
    ReleaseIn(*region, PageInRegion(piece.address), piece.pages);
    if (region->hashes.present.any()) continue;
    budget_->Give(sizeof(Region));
    tasks_.at(pid).erase(RegionOf(piece.address));
  }
}

Result<> RankPages::PutData(pid_t pid, const PageRun& run, std::span<const std::byte> bytes,
                            std::span<const Hash128> hashes) {
  const std::size_t first = PageInRegion(run.address);
  std::shared_ptr<Region> region;
  {
    const std::lock_guard lock(mutex_);
    XMPI_ASSIGN_OR_RETURN(region, MakeRegion(pid, run.address));
    XMPI_RETURN_IF_ERROR(TakeRoom(*region, run));
  }
  std::memcpy(region->memory.Page(first), bytes.data(), bytes.size());
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < run.pages; ++i) region->hashes.Set(first + i, hashes[i]);
  return {};
}

Result<> RankPages::PutZero(pid_t pid, const PageRun& run) {
  const std::lock_guard lock(mutex_);
  XMPI_ASSIGN_OR_RETURN(const std::shared_ptr<Region> region, MakeRegion(pid, run.address));
  const std::size_t first = PageInRegion(run.address);
  ReleaseIn(*region, first, run.pages);
  for (std::size_t i = 0; i < run.pages; ++i) region->hashes.Set(first + i, ZeroPageHash());
  return {};
}

Result<> RankPages::Verify(std::span<const TaskMemory> memory) {
  const std::lock_guard lock(mutex_);
  for (const TaskMemory& task : memory) {
    const std::optional<Hash128> digest = Digest(task.runs, [&](std::uint64_t region) {
      const std::shared_ptr<Region> found = FindRegion(task.pid, region * kRegionBytes);
      return found ? &found->hashes : nullptr;
    });
    if (digest && *digest == task.digest) continue;
    if (const auto held = tasks_.find(task.pid); held != tasks_.end()) DropTask(held);
    return Fail(ErrorCode::kUnreachable, std::format("the memory of process {} {}", task.pid,
                                                     digest ? "was damaged" : "is not all here"));
  }
  verified_ = true;
  return {};
}

void RankPages::Prune(std::span<const TaskMemory> memory) {
  const std::lock_guard lock(mutex_);
  for (auto task = tasks_.begin(); task != tasks_.end();) {
    const auto current = task++;
    const auto named = std::ranges::find(memory, current->first, &TaskMemory::pid);
    if (named == memory.end()) {
      DropTask(current);
    } else {
      PruneTask(&current->second, named->runs);
    }
  }
}

void RankPages::Drop() {
  const std::lock_guard lock(mutex_);
  while (!tasks_.empty()) DropTask(tasks_.begin());
  verified_ = false;
}

std::shared_ptr<RankPages::Region> RankPages::FindRegion(pid_t pid, std::uint64_t address) const {
  const auto task = tasks_.find(pid);
  if (task == tasks_.end()) return nullptr;
  const auto region = task->second.find(RegionOf(address));
  return region == task->second.end() ? nullptr : region->second;
}

Result<std::shared_ptr<RankPages::Region>> RankPages::MakeRegion(pid_t pid, std::uint64_t address) {
  if (verified_)
    return Fail(ErrorCode::kProtocol, std::format("the memory of rank {} is whole already", rank_));
  if (std::shared_ptr<Region> region = FindRegion(pid, address)) return region;
  XMPI_RETURN_IF_ERROR(budget_->Take(sizeof(Region)));
  return tasks_[pid][RegionOf(address)] = std::make_shared<Region>();
}

// The pages of the run become data, whose bytes and hashes are still to come.
Result<> RankPages::TakeRoom(Region& region, const PageRun& run) {
  if (!region.memory) {
    XMPI_ASSIGN_OR_RETURN(region.memory, pool_->Take());
  }
  const std::size_t first = PageInRegion(run.address);
  std::uint64_t more = 0;
  for (std::size_t i = 0; i < run.pages; ++i) more += region.data[first + i] ? 0 : 1;
  XMPI_RETURN_IF_ERROR(budget_->Take(more * kPageBytes));
  for (std::size_t i = 0; i < run.pages; ++i) {
    region.data.set(first + i);
    region.hashes.present.reset(first + i);
  }
  return {};
}

void RankPages::ReleaseIn(Region& region, std::size_t first, std::size_t pages) {
  for (std::size_t at = first; at < first + pages;) {
    const std::size_t count = Alike(region.data, at, first + pages - at);
    if (region.data[at]) {
      region.memory.Forget(at, count);
      budget_->Give(count * kPageBytes);
    }
    for (std::size_t i = 0; i < count; ++i, ++at) {
      region.data.reset(at);
      region.hashes.present.reset(at);
    }
  }
}

void RankPages::DropTask(std::map<pid_t, Regions>::iterator task) {
  for (const auto& [number, region] : task->second)
    budget_->Give(sizeof(Region) + region->data.count() * kPageBytes);
  tasks_.erase(task);
}

void RankPages::PruneTask(Regions* regions, std::span<const PageRun> runs) {
  std::unordered_map<std::uint64_t, std::bitset<kPagesPerRegion>> named;
  for (PageRun rest : runs) {
    while (rest.pages > 0) {
      const PageRun piece = TakePiece(&rest);
      auto& bits = named[RegionOf(piece.address)];
      for (std::size_t i = 0; i < piece.pages; ++i) bits.set(PageInRegion(piece.address) + i);
    }
  }
  std::erase_if(*regions, [&](auto& entry) {
    Region& region = *entry.second;
    const auto found = named.find(entry.first);
    const auto kept = found == named.end() ? std::bitset<kPagesPerRegion>() : found->second;
    for (std::size_t page = 0; page < kPagesPerRegion;) {
      const std::size_t count = Alike(kept, page, kPagesPerRegion - page);
      if (!kept[page]) ReleaseIn(region, page, count);
      page += count;
    }
    if (region.hashes.present.any()) return false;
    budget_->Give(sizeof(Region));
    return true;
  });
}

}  // namespace xmpi::image
