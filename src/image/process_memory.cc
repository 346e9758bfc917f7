#include "image/process_memory.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <format>
#include <string>
#include <string_view>
#include <utility>

#include "image/page_hashes.h"

namespace xmpi::image {
namespace {

// Of an entry of /proc/PID/pagemap.
constexpr std::uint64_t kPresent = 1ull << 63;
constexpr std::uint64_t kSwapped = 1ull << 62;
constexpr std::uint64_t kFileOrShared = 1ull << 61;

struct Mapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

Result<Fd> OpenOf(int proc_fd, pid_t pid, const char* name) {
  const std::string path = std::format("{}/{}", pid, name);
  Fd fd(openat(proc_fd, path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return std::unexpected(ErrnoError(std::format("open {} of process {}", name, pid)));
  return fd;
}

Result<std::string> ReadWhole(const Fd& fd) {
  std::string text;
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t size = read(fd.get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return std::unexpected(ErrnoError("read the mappings of a process"));
    if (size == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(size));
  }
}

// What lies behind the fifth blank of a line of maps, without the padding.
std::string_view NameIn(std::string_view line) {
  for (int field = 0; field < 5; ++field) {
    const auto blank = line.find(' ');
    if (blank == std::string_view::npos) return {};
    line.remove_prefix(blank + 1);
  }
  const auto begin = line.find_first_not_of(' ');
  return begin == std::string_view::npos ? std::string_view{} : line.substr(begin);
}

// A device's memory is not the process's own, and huge pages of a pool are not taken page by page.
bool IsOwnMemory(std::string_view name) {
  if (name.starts_with("/dev/")) return name == "/dev/zero";
  return !name.starts_with("/anon_hugepage") && !name.starts_with("[v");
}

// begin-end perms offset device inode name
bool ParseLine(std::string_view line, Mapping* mapping) {
  const auto dash = line.find('-');
  const auto blank = line.find(' ');
  if (dash == std::string_view::npos || blank == std::string_view::npos || dash > blank)
    return false;
  std::from_chars(line.data(), line.data() + dash, mapping->begin, 16);
  std::from_chars(line.data() + dash + 1, line.data() + blank, mapping->end, 16);
  const std::string_view permissions = line.substr(blank + 1, 4);
  return permissions.starts_with("rw") && permissions.ends_with('p') &&
         mapping->begin < mapping->end && mapping->end <= kAddressLimit &&
         IsOwnMemory(NameIn(line));
}

Result<std::vector<Mapping>> OwnMappings(int proc_fd, pid_t pid) {
  XMPI_ASSIGN_OR_RETURN(const Fd maps, OpenOf(proc_fd, pid, "maps"));
  XMPI_ASSIGN_OR_RETURN(const std::string text, ReadWhole(maps));
  std::vector<Mapping> mappings;
  for (std::string_view rest = text; !rest.empty();) {
    const auto end = std::min(rest.find('\n'), rest.size());
    Mapping mapping;
    if (ParseLine(rest.substr(0, end), &mapping)) mappings.push_back(mapping);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return mappings;
}

void AddRun(std::uint64_t begin, std::uint64_t end, std::vector<PageRun>* runs) {
  const std::uint64_t pages = (end - begin) / kPageBytes;
  if (!runs->empty() && EndOf(runs->back()) == begin) {
    runs->back().pages += pages;
  } else {
    runs->push_back({begin, pages});
  }
}

// False, with errno ENOTTY, where the kernel does not know the call.
bool ScanMapping(int pagemap, const Mapping& mapping, std::vector<PageRun>* runs) {
  std::array<page_region, 1024> found;
  pm_scan_arg scan{};
  scan.size = sizeof(scan);
  scan.end = mapping.end;
  scan.vec = reinterpret_cast<std::uintptr_t>(found.data());
  scan.vec_len = found.size();
  scan.category_inverted = PAGE_IS_FILE | PAGE_IS_PFNZERO;
  scan.category_mask = PAGE_IS_FILE | PAGE_IS_PFNZERO;
  scan.category_anyof_mask = PAGE_IS_PRESENT | PAGE_IS_SWAPPED;
  for (scan.start = mapping.begin; scan.start < scan.end; scan.start = scan.walk_end) {
    const int count = ioctl(pagemap, PAGEMAP_SCAN, &scan);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    for (int i = 0; i < count; ++i)
      AddRun(found[static_cast<std::size_t>(i)].start, found[static_cast<std::size_t>(i)].end,
             runs);
    if (scan.walk_end <= scan.start) break;
  }
  return true;
}

bool ReadMapping(int pagemap, const Mapping& mapping, std::vector<PageRun>* runs) {
  std::array<std::uint64_t, 4096> entries;
  for (std::uint64_t address = mapping.begin; address < mapping.end;) {
    const std::size_t pages =
        std::min<std::uint64_t>(entries.size(), (mapping.end - address) / kPageBytes);
    const ssize_t size = pread(pagemap, entries.data(), pages * sizeof(entries[0]),
                               static_cast<off_t>(address / kPageBytes * sizeof(entries[0])));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return false;
    if (size < static_cast<ssize_t>(sizeof(entries[0]))) break;  // it has ended
    for (std::size_t i = 0; i < static_cast<std::size_t>(size) / sizeof(entries[0]); ++i) {
      const bool own =
          (entries[i] & (kPresent | kSwapped)) != 0 && (entries[i] & kFileOrShared) == 0;
      if (own) AddRun(address, address + kPageBytes, runs);
      address += kPageBytes;
    }
  }
  return true;
}

}  // namespace

Result<int> ProcessMemory::Open(pid_t pid) {
  const std::lock_guard lock(mutex_);
  if (const auto known = memories_.find(pid); known != memories_.end()) return known->second.get();
  XMPI_ASSIGN_OR_RETURN(Fd fd, OpenOf(proc_fd_, pid, "mem"));
  return memories_.emplace(pid, std::move(fd)).first->second.get();
}

Result<std::size_t> ProcessMemory::Read(pid_t pid, std::uint64_t address,
                                        std::span<std::byte> out) {
  XMPI_ASSIGN_OR_RETURN(const int fd, Open(pid));
  std::size_t got = 0;
  while (got < out.size()) {
    const ssize_t size =
        pread(fd, out.data() + got, out.size() - got, static_cast<off_t>(address + got));
    if (size < 0 && errno == EINTR) continue;
    if (size == 0) return Fail(std::format("process {} has ended, and its memory is gone", pid));
    if (size < 0 && errno != EIO && errno != EFAULT)
      return std::unexpected(ErrnoError(std::format("read the memory of process {}", pid)));
    if (size < 0) break;
    got += static_cast<std::size_t>(size);
  }
  return got / kPageBytes * kPageBytes;
}

Result<std::vector<PageRun>> Scan(int proc_fd, pid_t pid, ScanBy by) {
  XMPI_ASSIGN_OR_RETURN(const std::vector<Mapping> mappings, OwnMappings(proc_fd, pid));
  XMPI_ASSIGN_OR_RETURN(const Fd pagemap, OpenOf(proc_fd, pid, "pagemap"));
  std::vector<PageRun> runs;
  bool by_ioctl = by == ScanBy::kBest;
  for (const Mapping& mapping : mappings) {
    bool scanned = by_ioctl && ScanMapping(pagemap.get(), mapping, &runs);
    if (by_ioctl && !scanned && errno == ENOTTY) by_ioctl = false;
    if (!by_ioctl) scanned = ReadMapping(pagemap.get(), mapping, &runs);
    if (!scanned)
      return std::unexpected(ErrnoError(std::format("find the pages of process {}", pid)));
  }
  return runs;
}

}  // namespace xmpi::image
