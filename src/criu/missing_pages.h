// MissingPages: which pages of one restored process are not there yet, and where their content
// lies: under which address of which process of the image. They start at their own address and
// follow the process's mremap. Pure.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "image/pages.h"

namespace xmpi::criu {

// Pages that lie side by side in the process and in the image.
struct MissingRun {
  std::uint64_t address = 0;  // now, in the process
  std::uint64_t pages = 0;
  pid_t pid = 0;             // in the image
  std::uint64_t origin = 0;  // the first page's address in the image
  bool operator==(const MissingRun&) const = default;

  // The part in [begin, end); no pages when there is none.
  MissingRun Part(std::uint64_t begin, std::uint64_t end) const;
};

class MissingPages {
 public:
  void Add(const MissingRun& run);
  // What is missing in [begin, end), and is no longer.
  std::vector<MissingRun> Cut(std::uint64_t begin, std::uint64_t end);
  void Move(std::uint64_t from, std::uint64_t to, std::uint64_t bytes);

  // The run from `address` on, when that page is missing.
  std::optional<MissingRun> At(std::uint64_t address) const;
  // The lowest one at or above `address`, else the lowest of all.
  std::optional<MissingRun> Next(std::uint64_t address) const;
  std::vector<MissingRun> All() const;
  bool empty() const { return runs_.empty(); }

 private:
  std::map<std::uint64_t, MissingRun> runs_;  // by address, disjoint
};

}  // namespace xmpi::criu
