// CRIU's pagemap images (version 4.1.1): which pages of a process, or of a shared mapping, lie in
// which pages-N.img, one behind the other in the order of the entries. An entry that is lazy and
// not present has no bytes there: whoever restores it lazily brings them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace xmpi::criu {

inline constexpr std::uint32_t kPageParent = 1, kPageLazy = 2, kPagePresent = 4;

struct PagemapEntry {
  std::uint64_t address = 0;
  std::uint64_t pages = 0;
  std::uint32_t flags = 0;
  bool operator==(const PagemapEntry&) const = default;
};

struct Pagemap {
  std::uint32_t pages_number = 0;  // the N of pages-N.img
  std::vector<PagemapEntry> entries;
  bool operator==(const Pagemap&) const = default;

  // Onto the last entry when it goes on there.
  void Append(PagemapEntry entry);
};

std::string Encode(const Pagemap& pagemap);
Result<Pagemap> DecodePagemap(std::string_view image, const char* name);

std::string PagesName(std::uint32_t number);
std::string PagemapName(std::uint64_t task);
std::string SharedPagemapName(std::uint64_t mapping);

}  // namespace xmpi::criu
