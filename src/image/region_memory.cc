#include "image/region_memory.h"

#include <sys/mman.h>

#include <cstdint>

namespace xmpi::image {
namespace {

// Mapped at once, so that the kernel's limit on mappings (65530) leaves room for terabytes.
constexpr std::size_t kRegionsPerArena = 64;

}  // namespace

RegionPool::~RegionPool() {
  for (const Arena& arena : arenas_) munmap(arena.begin, arena.bytes);
}

Result<RegionMemory> RegionPool::Take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) XMPI_RETURN_IF_ERROR(AddArena());
  std::byte* const data = free_.back();
  free_.pop_back();
  return RegionMemory(shared_from_this(), data);
}

Result<> RegionPool::AddArena() {
  // One region more than is handed out, so that they can be aligned.
  const std::size_t bytes = (kRegionsPerArena + 1) * kRegionBytes;
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return std::unexpected(ErrnoError("memory for pages"));
  (void)madvise(mapped, bytes, MADV_NOHUGEPAGE);  // without it all works, with more memory
  arenas_.push_back({static_cast<std::byte*>(mapped), bytes});
  const auto at = reinterpret_cast<std::uintptr_t>(mapped);
  std::byte* const first = arenas_.back().begin + (kRegionBytes - at % kRegionBytes) % kRegionBytes;
  for (std::size_t i = kRegionsPerArena; i > 0; --i)
    free_.push_back(first + (i - 1) * kRegionBytes);
  return {};
}

void RegionPool::Give(std::byte* data) {
  (void)madvise(data, kRegionBytes, MADV_DONTNEED);
  const std::lock_guard lock(mutex_);
  free_.push_back(data);
}

void RegionMemory::Forget(std::size_t first, std::size_t pages) {
  (void)madvise(Page(first), pages * kPageBytes, MADV_DONTNEED);
}

}  // namespace xmpi::image
