// Small readers of /proc and /sys: whole files, links, lists and `Name: value` lines. What cannot
// be read is empty: a process may end while it is looked at.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace xmpi::os {

std::string ReadText(const std::string& path);
std::string ReadLink(const std::string& path);
// The numeric names in a directory.
std::vector<int> Numbers(const std::string& directory);
// What stands behind `name:` in a text of such lines; "" when there is none.
std::string Field(std::string_view text, std::string_view name);
// The number at the start of a field, in kB there: bytes.
std::uint64_t KilobytesField(std::string_view text, std::string_view name);

// One line of /proc/PID/maps.
struct Mapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t inode = 0;
  std::string path;  // without " (deleted)"
  bool deleted = false;
  bool executable = false;
};
std::vector<Mapping> ParseMaps(const std::string& text);
// What a link or a line of /proc shows of a file that has no name any more ends so.
inline constexpr std::string_view kDeleted = " (deleted)";

}  // namespace xmpi::os
