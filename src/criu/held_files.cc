#include "criu/held_files.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <format>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "base/fd.h"
#include "criu/swrk.h"

namespace xmpi::criu {
namespace {

using image::FileUse;
using image::HeldFile;

struct FileSystem {
  std::uint64_t type;
  const char* name;
  enum Kind { kNode, kShared, kKernel } kind;
};

// The numbers that linux/magic.h lacks are the file systems' own.
constexpr FileSystem kFileSystems[] = {
    {NFS_SUPER_MAGIC, "nfs", FileSystem::kShared},
    {0x0bd00bd0, "lustre", FileSystem::kShared},
    {0x19830326, "beegfs", FileSystem::kShared},
    {0x47504653, "gpfs", FileSystem::kShared},
    {CEPH_SUPER_MAGIC, "ceph", FileSystem::kShared},
    {FUSE_SUPER_MAGIC, "fuse", FileSystem::kShared},
    {SMB_SUPER_MAGIC, "smb", FileSystem::kShared},
    {CIFS_SUPER_MAGIC, "cifs", FileSystem::kShared},
    {SMB2_SUPER_MAGIC, "smb2", FileSystem::kShared},
    {V9FS_MAGIC, "9p", FileSystem::kShared},
    {AFS_SUPER_MAGIC, "afs", FileSystem::kShared},
    {AFS_FS_MAGIC, "afs", FileSystem::kShared},
    {CODA_SUPER_MAGIC, "coda", FileSystem::kShared},
    {OCFS2_SUPER_MAGIC, "ocfs2", FileSystem::kShared},
    {0x01161970, "gfs2", FileSystem::kShared},
    {0x20030528, "orangefs", FileSystem::kShared},
    {0xaad7aaea, "panfs", FileSystem::kShared},
    {0x47414653, "glusterfs", FileSystem::kShared},
    {TMPFS_MAGIC, "tmpfs", FileSystem::kNode},
    {EXT4_SUPER_MAGIC, "ext4", FileSystem::kNode},
    {XFS_SUPER_MAGIC, "xfs", FileSystem::kNode},
    {BTRFS_SUPER_MAGIC, "btrfs", FileSystem::kNode},
    {OVERLAYFS_SUPER_MAGIC, "overlay", FileSystem::kNode},
    {PROC_SUPER_MAGIC, "proc", FileSystem::kKernel},
    {SYSFS_MAGIC, "sysfs", FileSystem::kKernel},
    {CGROUP2_SUPER_MAGIC, "cgroup2", FileSystem::kKernel},
    {DEBUGFS_MAGIC, "debugfs", FileSystem::kKernel},
    {TRACEFS_MAGIC, "tracefs", FileSystem::kKernel},
    {HUGETLBFS_MAGIC, "hugetlbfs", FileSystem::kKernel},
};

const FileSystem* FindFileSystem(std::uint64_t type) {
  const auto found = std::ranges::find(kFileSystems, type, &FileSystem::type);
  return found == std::end(kFileSystems) ? nullptr : found;
}

struct OpenFile {
  bool writable = false;
  bool locked = false;
};

OpenFile ReadFdInfo(int proc_fd, const OpenFd& fd) {
  const std::string text = ReadFileAt(proc_fd, std::format("{}/fdinfo/{}", fd.pid, fd.fd).c_str());
  const std::size_t flags = text.find("flags:");
  OpenFile open;
  if (flags != std::string::npos)
    open.writable = (std::strtol(text.c_str() + flags + 6, nullptr, 8) & O_ACCMODE) != O_RDONLY;
  open.locked = text.contains("\nlock:");
  return open;
}

// One line of /proc/PID/maps that shows a file: what of it matters here.
struct Mapping {
  std::string range;  // as map_files calls it
  bool writable = false, code = false, shared = false;
};

std::map<std::string, std::vector<Mapping>> ReadMappings(int proc_fd, pid_t pid) {
  std::map<std::string, std::vector<Mapping>> files;
  std::istringstream maps(ReadFileAt(proc_fd, std::format("{}/maps", pid).c_str()));
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string range, access, offset, device, inode;
    words >> range >> access >> offset >> device >> inode;
    if (inode == "0" || access.size() < 4) continue;
    files[std::format("{}:{}", device, inode)].push_back(
        {range, access[1] == 'w', access[2] == 'x', access[3] == 's'});
  }
  return files;
}

class Collector {
 public:
  Collector(int proc_fd, RankId rank) : proc_fd_(proc_fd), rank_(rank) {}

  void AddFds(const std::vector<Process>& tree) {
    for (const OpenFd& fd : ReadFds(proc_fd_, tree)) {
      if (!fd.target.starts_with('/')) continue;
      const OpenFile open = ReadFdInfo(proc_fd_, fd);
      Add(std::format("{}/fd/{}", fd.pid, fd.fd),
          open.writable ? FileUse::kWritten : FileUse::kRead, open.locked);
    }
  }

  void AddMappings(const Process& process) {
    for (const auto& [file, mappings] : ReadMappings(proc_fd_, process.pid)) {
      if (std::ranges::any_of(mappings, &Mapping::code)) continue;
      const bool written = std::ranges::any_of(
          mappings, [](const Mapping& each) { return each.shared && each.writable; });
      Add(std::format("{}/map_files/{}", process.pid, mappings.front().range),
          written ? FileUse::kWritten : FileUse::kMapped, false);
    }
  }

  void AddFolder(const Process& process) {
    Add(std::format("{}/cwd", process.pid), FileUse::kFolder, false);
  }

  std::vector<Held> Take() {
    std::vector<Held> all;
    for (auto& [id, held] : found_) all.push_back(std::move(held));
    return all;
  }

 private:
  void Add(const std::string& link, FileUse use, bool locked) {
    struct stat info{};
    struct statfs system{};
    const Fd handle(openat(proc_fd_, link.c_str(), O_PATH | O_CLOEXEC));
    if (!handle || fstat(handle.get(), &info) != 0 || fstatfs(handle.get(), &system) != 0) return;
    if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) return;
    const auto type = static_cast<std::uint64_t>(system.f_type) & 0xffffffff;
    const FileSystem* known = FindFileSystem(type);
    if (known != nullptr && known->kind == FileSystem::kKernel) return;
    std::string path = ReadLinkAt(proc_fd_, link);
    if (!path.starts_with('/') || path.starts_with("/memfd:") || path.starts_with("/SYSV") ||
        path.starts_with("/dev/zero"))
      return;
    if (S_ISDIR(info.st_mode)) use = FileUse::kFolder;
    if (info.st_nlink == 0) use = FileUse::kDeleted;
    Held& held = found_[{info.st_dev, info.st_ino}];
    HeldFile& file = held.file;
    file.locked |= locked;
    if (file.use != FileUse{} && file.use <= use) return;
    file.rank = rank_;
    file.path = std::move(path);
    file.use = use;
    file.shared = IsSharedType(type);
    file.memory = file.path.starts_with("/dev/shm/") && type == TMPFS_MAGIC;
    file.file_system = FileSystemName(type);
    file.kernel = KernelId();
    file.mode = info.st_mode;
    file.user = info.st_uid;
    file.group = info.st_gid;
    file.state = StateOfFile(handle.get(), "", AT_EMPTY_PATH, &file.device);
    held.link = link;
  }

  int proc_fd_;
  RankId rank_;
  std::map<std::pair<dev_t, ino_t>, Held> found_;
};

std::set<std::pair<dev_t, ino_t>> DeletedFiles(int proc_fd, const std::vector<Process>& tree) {
  std::set<std::pair<dev_t, ino_t>> deleted;
  const auto add = [&](const std::string& link) {
    struct stat info{};
    if (fstatat(proc_fd, link.c_str(), &info, 0) == 0 && S_ISREG(info.st_mode) &&
        info.st_nlink == 0)
      deleted.emplace(info.st_dev, info.st_ino);
  };
  for (const OpenFd& fd : ReadFds(proc_fd, tree)) {
    if (fd.target.ends_with(" (deleted)")) add(std::format("{}/fd/{}", fd.pid, fd.fd));
  }
  for (const Process& process : tree) {
    for (const auto& [file, mappings] : ReadMappings(proc_fd, process.pid)) {
      if (mappings.front().shared)
        add(std::format("{}/map_files/{}", process.pid, mappings.front().range));
    }
  }
  return deleted;
}

std::uint64_t Nanoseconds(const statx_timestamp& time) {
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u + time.tv_nsec;
}

}  // namespace

image::FileState StateOfFile(int directory, const char* path, int flags, std::uint64_t* device) {
  struct statx info{};
  if (statx(directory, path, flags, STATX_BASIC_STATS, &info) != 0) return {};
  *device = makedev(info.stx_dev_major, info.stx_dev_minor);
  return {.inode = info.stx_ino,
          .size = info.stx_size,
          .modified_ns = Nanoseconds(info.stx_mtime),
          .changed_ns = Nanoseconds(info.stx_ctime)};
}

const std::string& KernelId() {
  static const std::string id = [] {
    std::string text;
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::getline(file, text);
    return text;
  }();
  return id;
}

bool IsSharedType(std::uint64_t type) {
  const FileSystem* known = FindFileSystem(type);
  return known != nullptr && known->kind == FileSystem::kShared;
}

std::string FileSystemName(std::uint64_t type) {
  const FileSystem* known = FindFileSystem(type);
  return known != nullptr ? known->name : std::format("type {:#x}", type);
}

std::vector<Held> ReadHeldFiles(int proc_fd, RankId rank, const std::vector<Process>& tree) {
  Collector collector(proc_fd, rank);
  collector.AddFds(tree);
  for (const Process& process : tree) {
    if (process.state == 'Z') continue;
    collector.AddMappings(process);
    collector.AddFolder(process);
  }
  return collector.Take();
}

std::string SharedDeletedFile(int proc_fd, const std::vector<Process>& tree) {
  const auto own = DeletedFiles(proc_fd, tree);
  if (own.empty()) return {};
  for (const Process& process : Strays(proc_fd, {tree.front().pid})) {
    for (const auto& id : DeletedFiles(proc_fd, {process})) {
      if (own.contains(id))
        return std::format(
            "a deleted file (inode {}) that {} (PID {} in its slot) has open or mapped too",
            id.second, process.name, process.pid);
    }
  }
  return {};
}

}  // namespace xmpi::criu
