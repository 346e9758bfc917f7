// Pages: the memory of a rank's processes, which does not travel in CRIU's files but page by page:
// read from the process while it still runs (pre-copy) and once more when it is stopped, sent where
// it differs from what the target holds, kept there in a PageStore until the restored rank has
// taken it. This header is the vocabulary, and the two seams: where pages are read, and where they
// lie.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "image/names.h"

namespace xmpi::image {

inline constexpr std::uint64_t kPageBytes = 4096;
// What a lane sends and a store keeps together: an aligned piece of an address space.
inline constexpr std::uint64_t kRegionBytes = 2u << 20;

struct PageRun {
  std::uint64_t address = 0;  // a multiple of kPageBytes
  std::uint64_t pages = 0;
  bool operator==(const PageRun&) const = default;
};

// The pages of one process of a rank's tree, as the dump found them: ascending, disjoint runs, and
// the digest of their content, which the source makes while sending and the target compares.
struct TaskMemory {
  pid_t pid = 0;  // in the slot
  std::vector<PageRun> runs;
  Hash128 digest;
  bool operator==(const TaskMemory&) const = default;
};

// Where the pages of one rank's processes can be read: a stopped original, a running rank, a store.
// Callable from several threads.
class PageSource {
 public:
  virtual ~PageSource() = default;
  // Fills `out`, a multiple of kPageBytes, from `address` on; gives how many bytes there were
  // before the first page that cannot be read. An error when the process is gone.
  virtual Result<std::size_t> Read(pid_t pid, std::uint64_t address, std::span<std::byte> out) = 0;
};

// The pages of one rank as the target holds them. Callable from several threads.
class StoredPages : public PageSource {
 public:
  enum class Kind { kAbsent, kZero, kData };
  struct Found {
    Kind kind = Kind::kAbsent;
    std::uint64_t pages = 0;          // how many from the address on are of this kind, at least one
    const std::byte* data = nullptr;  // kData: the bytes of all of them, until they are released
  };
  // Looks no further than `most` pages, nor than the end of the region.
  virtual Found Find(pid_t pid, std::uint64_t address, std::uint64_t most) = 0;
  // Gives their memory back; they are absent from now on.
  virtual void Release(pid_t pid, PageRun run) = 0;
};

}  // namespace xmpi::image
