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

Result<RegionMemory> RegionPool::Take(Filling filling) {
  const std::lock_guard lock(mutex_);
  FreeList& free = FreeOf(filling);
  if (free.empty()) XMPI_RETURN_IF_ERROR(AddArena(filling));
  std::byte* const data = free.back();
  free.pop_back();
  return RegionMemory(shared_from_this(), data, filling);
}

Result<> RegionPool::AddArena(Filling filling) {
  // One region more than is handed out, so that they can be aligned.
  const std::size_t bytes = (kRegionsPerArena + 1) * kRegionBytes;
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return std::unexpected(ErrnoError("memory for pages"));
  // Advice only: without it all works, with more memory or time.
  (void)madvise(mapped, bytes, filling == Filling::kDense ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  arenas_.push_back({static_cast<std::byte*>(mapped), bytes});
  const auto at = reinterpret_cast<std::uintptr_t>(mapped);
  std::byte* const first = arenas_.back().begin + (kRegionBytes - at % kRegionBytes) % kRegionBytes;
  for (std::size_t i = kRegionsPerArena; i > 0; --i)
    FreeOf(filling).push_back(first + (i - 1) * kRegionBytes);
  return {};
}

void RegionPool::Give(std::byte* data, Filling filling) {
  (void)madvise(data, kRegionBytes, MADV_DONTNEED);
  const std::lock_guard lock(mutex_);
  FreeOf(filling).push_back(data);
}

void RegionMemory::Forget(std::size_t first, std::size_t pages) {
  (void)madvise(Page(first), pages * kPageBytes, MADV_DONTNEED);
}

}  // namespace xmpi::image
