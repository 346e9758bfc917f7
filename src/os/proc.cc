#include "os/proc.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace xmpi::os {

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  if (file) text << file.rdbuf();
  return text.str();
}

std::string ReadLink(const std::string& path) {
  std::error_code error;
  const auto target = std::filesystem::read_symlink(path, error);
  return error ? "" : target.string();
}

std::vector<int> Numbers(const std::string& directory) {
  std::vector<int> numbers;
  std::error_code error;
  std::filesystem::directory_iterator entries(directory, error);
  while (!error && entries != std::filesystem::directory_iterator()) {
    const std::string name = entries->path().filename().string();
    int number = 0;
    const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (failed == std::errc() && end == name.data() + name.size()) numbers.push_back(number);
    entries.increment(error);
  }
  std::ranges::sort(numbers);
  return numbers;
}

std::string Field(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view key = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    if (key != name) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string_view::npos ? "" : std::string(line.substr(begin));
  }
  return "";
}

std::uint64_t KilobytesField(std::string_view text, std::string_view name) {
  const std::string value = Field(text, name);
  std::uint64_t kilobytes = 0;
  std::from_chars(value.data(), value.data() + value.size(), kilobytes);
  return kilobytes * 1024;
}

std::vector<Mapping> ParseMaps(const std::string& text) {
  std::vector<Mapping> mappings;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    Mapping mapping;
    std::istringstream words(line);
    std::string range, mode, offset, device;
    if (!(words >> range >> mode >> offset >> device >> mapping.inode)) continue;
    std::getline(words >> std::ws, mapping.path);
    const std::size_t dash = range.find('-');
    if (dash == std::string::npos) continue;
    mapping.begin = std::strtoull(range.c_str(), nullptr, 16);
    mapping.end = std::strtoull(range.c_str() + dash + 1, nullptr, 16);
    mapping.deleted = mapping.path.ends_with(kDeleted);
    mapping.executable = mode.contains('x');
    if (mapping.deleted) mapping.path.resize(mapping.path.size() - kDeleted.size());
    mappings.push_back(std::move(mapping));
  }
  return mappings;
}

}  // namespace xmpi::os
