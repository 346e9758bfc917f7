// RegionPool: memory for the pages of regions, in pieces of kRegionBytes at addresses that are a
// multiple of it. A piece costs what of it is touched, in pages of 4 KiB: they come one by one and
// are given back one by one, which huge pages do not allow. RegionMemory is one piece; it keeps its
// pool and goes back there. Callable from several threads.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "image/pages.h"

namespace xmpi::image {

class RegionMemory;

class RegionPool : public std::enable_shared_from_this<RegionPool> {
 public:
  ~RegionPool();
  Result<RegionMemory> Take();

 private:
  friend class RegionMemory;
  struct Arena {
    std::byte* begin = nullptr;  // of the mapping
    std::size_t bytes = 0;
  };

  Result<> AddArena();
  void Give(std::byte* data);

  std::mutex mutex_;
  std::vector<Arena> arenas_;
  std::vector<std::byte*> free_;
};

class RegionMemory {
 public:
  RegionMemory() = default;
  RegionMemory(RegionMemory&& other) noexcept { *this = std::move(other); }
  RegionMemory& operator=(RegionMemory&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~RegionMemory() {
    if (pool_) pool_->Give(data_);
  }

  explicit operator bool() const { return data_ != nullptr; }
  // Of the page with this number in the region.
  std::byte* Page(std::size_t page) const { return data_ + page * kPageBytes; }
  // Gives back what these pages cost; they read as zero afterwards.
  void Forget(std::size_t first, std::size_t pages);

 private:
  friend class RegionPool;
  RegionMemory(std::shared_ptr<RegionPool> pool, std::byte* data)
      : pool_(std::move(pool)), data_(data) {}

  std::shared_ptr<RegionPool> pool_;
  std::byte* data_ = nullptr;
};

}  // namespace xmpi::image
