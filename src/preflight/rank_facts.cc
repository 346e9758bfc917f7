#include "preflight/rank_facts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <format>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "base/fd.h"
#include "preflight/files.h"
#include "preflight/proc.h"
#include "preflight/sockets.h"

namespace xmpi::preflight {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::string_view kSharedMemory = "/dev/shm/";
constexpr std::string_view kDeleted = " (deleted)";

// Anon inodes that CRIU 4 saves and makes anew.
constexpr std::array kKnownObjects = {"[eventfd]"sv, "[eventpoll]"sv, "[signalfd]"sv, "[timerfd]"sv,
                                      "inotify"sv,   "[fanotify]"sv,  "[pidfd]"sv,    "bpf-map"sv};
// What MPI libraries open of themselves, and close with their session.
constexpr std::array kMpiDevices = {"/dev/infiniband/"sv, "/dev/knem"sv, "/dev/xpmem"sv,
                                    "/dev/hfi1"sv,        "/dev/cxi"sv,  "/dev/kfd"sv};
constexpr std::array kMpiShared = {"mpich"sv,      "ucx"sv, "vader"sv,
                                   "sm_segment"sv, "psm"sv, "osc_rdma"sv};

bool BeginsWithOneOf(std::string_view text, const auto& beginnings) {
  return std::ranges::any_of(beginnings, [&](auto each) { return text.starts_with(each); });
}

// Memory devices are the same everywhere.
bool IsPlainDevice(dev_t device) {
  constexpr unsigned kMemory = 1;
  return major(device) == kMemory && minor(device) != 1 && minor(device) != 4;
}

// "socket:[123]" and the like.
std::uint64_t InodeIn(const std::string& target) {
  const std::size_t at = target.find('[');
  return at == std::string::npos ? 0 : std::strtoull(target.c_str() + at + 1, nullptr, 10);
}

std::string WithoutDeleted(std::string path) {
  if (path.ends_with(kDeleted)) path.resize(path.size() - kDeleted.size());
  return path;
}

// SysV segments that go with their last user, as MPI libraries make them: by shmid, and the key.
bool IsPrivateAndDoomed(std::uint64_t shmid) {
  constexpr unsigned kDoomed = 01000;  // SHM_DEST
  std::istringstream lines(ReadText("/proc/sysvipc/shm"));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    long key = 0;
    std::uint64_t id = 0;
    std::string mode;
    if (!(words >> key >> id >> mode) || id != shmid) continue;
    return key == 0 && (std::strtoul(mode.c_str(), nullptr, 8) & kDoomed) != 0;
  }
  return false;
}

class Look {
 public:
  Look(const RankToLookAt& rank, bool all) : rank_(rank), all_(all) {
    facts_.set_rank(rank.rank);
    if (rank.pids.empty()) return;
    facts_.set_pid(static_cast<std::uint32_t>(rank.pids.front()));
  }

  wire::RankFacts Take() {
    // A child may hold the other end of its parent's socket; the parent is looked at first.
    if (rank_.pids.size() > 1) {
      for (const pid_t pid : rank_.pids) CollectSockets(Proc(pid));
    }
    for (const pid_t pid : rank_.pids) OfProcess(pid);
    return std::move(facts_);
  }

 private:
  static std::string Proc(pid_t pid) { return std::format("/proc/{}", pid); }

  void OfProcess(pid_t pid) {
    pid_ = pid;
    process_ = Proc(pid);
    const std::string status = ReadText(process_ + "/status");
    name_ = Field(status, "Name");
    OfState(status);
    OfDescriptors();
    OfMappings();
    if (!all_) return;
    if (!files_) files_ = std::make_unique<Files>(process_);
    if (pid == rank_.pids.front()) {
      facts_.set_program(ReadLink(process_ + "/exe"));
      facts_.set_working_directory(ReadLink(process_ + "/cwd"));
    }
    facts_.set_memory_bytes(facts_.memory_bytes() + KilobytesField(status, "RssAnon") +
                            KilobytesField(status, "RssShmem") + KilobytesField(status, "VmSwap") +
                            KilobytesField(status, "HugetlbPages"));
  }

  void CollectSockets(const std::string& process) {
    for (const int fd : Numbers(process + "/fd")) {
      const std::string target = ReadLink(std::format("{}/fd/{}", process, fd));
      if (target.starts_with("socket:")) own_sockets_.insert(InodeIn(target));
    }
  }

  wire::Held& Hold(wire::Held::Kind kind, int fd, std::string name) {
    wire::Held& held = *facts_.add_holds();
    held.set_kind(kind);
    held.set_pid(static_cast<std::uint32_t>(pid_));
    held.set_process(name_);
    held.set_fd(fd);
    held.set_name(std::move(name));
    return held;
  }

  void OfState(const std::string& status) {
    const std::string tracer = Field(status, "TracerPid");
    if (!tracer.empty() && tracer != "0")
      Hold(wire::Held::TRACED, -1, std::format("the debugger PID {}", tracer));
    for (const char* space : {"pid", "mnt"}) {
      const std::string own = ReadLink(std::format("{}/ns/{}", process_, space));
      const std::string root = ReadLink(std::format("{}/ns/{}", Proc(rank_.pids.front()), space));
      if (!own.empty() && !root.empty() && own != root)
        Hold(wire::Held::NAMESPACE, -1, std::format("a {} namespace of its own", space));
    }
  }

  void OfDescriptors() {
    const std::vector<int> fds = Numbers(process_ + "/fd");
    std::vector<std::pair<int, std::string>> targets;
    bool has_master = false;
    for (const int fd : fds) {
      targets.emplace_back(fd, ReadLink(std::format("{}/fd/{}", process_, fd)));
      const std::string& target = targets.back().second;
      has_master |= target == "/dev/ptmx" || target == "/dev/pts/ptmx";
      if (target.starts_with("socket:")) own_sockets_.insert(InodeIn(target));
    }
    for (const auto& [fd, target] : targets) OfDescriptor(fd, target, has_master);
  }

  void OfDescriptor(int fd, const std::string& target, bool has_master) {
    if (target.starts_with("socket:[")) return OfSocket(fd, InodeIn(target));
    if (target.starts_with("anon_inode:")) return OfObject(fd, target);
    if (!target.starts_with('/') || target.starts_with("/memfd:")) return;
    struct stat info{};
    const std::string link = std::format("{}/fd/{}", process_, fd);
    if (stat(link.c_str(), &info) != 0) return;
    const bool special = S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode);
    if (special) return OfDevice(fd, target, info.st_rdev, has_master);
    if (target.starts_with("/secretmem") || target.starts_with("/dmabuf")) {
      Hold(wire::Held::KERNEL_OBJECT, fd, target);
    } else if (S_ISREG(info.st_mode) && info.st_nlink == 0) {
      const auto size = static_cast<std::uint64_t>(info.st_size);
      if (size > rank_.ghost_limit_bytes)
        Hold(wire::Held::DELETED_FILE, fd, WithoutDeleted(target)).set_bytes(size);
    } else if (all_ && !target.starts_with("/proc/") && !target.starts_with(kSharedMemory) &&
               (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode))) {
      AddFile(fd, target);
    }
  }

  void OfSocket(int fd, std::uint64_t inode) {
    if (rank_.ties.contains(inode)) return;
    if (!sockets_) sockets_ = std::make_unique<Sockets>(process_);
    const SocketFacts socket = sockets_->Find(inode, std::format("{}/fd/{}", process_, fd));
    // One whose both ends are the rank's travels with it; so does one that nobody is at.
    const bool inside = socket.kind == wire::Held::UNIX_SOCKET &&
                        (socket.peer == 0 || own_sockets_.contains(socket.peer));
    if (inside) return;
    const bool internet = socket.kind == wire::Held::TCP || socket.kind == wire::Held::UDP;
    Hold(socket.kind, fd, socket.text).set_may_be_mpis(internet && !IsBlocking(fd));
  }

  // No MPI library lets a socket of its own block it.
  bool IsBlocking(int fd) const {
    const std::string flags = Field(ReadText(std::format("{}/fdinfo/{}", process_, fd)), "flags");
    return (std::strtoul(flags.c_str(), nullptr, 8) & O_NONBLOCK) == 0;
  }

  void OfObject(int fd, const std::string& target) {
    const std::string kind = target.substr(target.find(':') + 1);
    if (std::ranges::find(kKnownObjects, kind) != kKnownObjects.end()) return;
    Hold(kind == "[io_uring]" ? wire::Held::IO_URING : wire::Held::KERNEL_OBJECT, fd, target);
  }

  void OfDevice(int fd, const std::string& path, dev_t device, bool has_master) {
    if (IsPlainDevice(device)) return;
    const bool terminal =
        path.starts_with("/dev/pts/") || path.starts_with("/dev/tty") || path == "/dev/ptmx";
    if (terminal && has_master) return;
    Hold(terminal ? wire::Held::TERMINAL : wire::Held::DEVICE, fd, path)
        .set_may_be_mpis(BeginsWithOneOf(path, kMpiDevices));
  }

  void AddFile(int fd, const std::string& path) {
    if (!files_) files_ = std::make_unique<Files>(process_);
    wire::OpenFile& file = *facts_.add_files();
    file.set_pid(static_cast<std::uint32_t>(pid_));
    file.set_fd(fd);
    const std::string flags = Field(ReadText(std::format("{}/fdinfo/{}", process_, fd)), "flags");
    file.set_flags(static_cast<std::uint32_t>(std::strtoul(flags.c_str(), nullptr, 8)));
    *file.mutable_file() = files_->At(path, false);
  }

  void OfMappings() {
    std::set<std::string> seen;
    const std::vector<Mapping> mappings = ParseMaps(ReadText(process_ + "/maps"));
    for (const Mapping& mapping : mappings) {
      if (mapping.executable) code_.insert(mapping.path);
    }
    for (const Mapping& mapping : mappings) {
      if (mapping.path.starts_with("/SYSV")) {
        if (seen.insert(std::to_string(mapping.inode)).second) OfSysv(mapping);
      } else if (mapping.path.starts_with("/anon_hugepage")) {
        OfHugePages(mapping);
      } else if (mapping.path.starts_with("anon_inode:")) {
        if (mapping.path != "anon_inode:[io_uring]" && seen.insert(mapping.path).second)
          OfObject(-1, mapping.path);
      } else if (mapping.path.starts_with('/') && seen.insert(mapping.path).second) {
        OfMappedFile(mapping);
      }
    }
  }

  void OfSysv(const Mapping& mapping) {
    wire::Held& held = Hold(wire::Held::SYSV_SHM, -1,
                            std::format("{}, shmid {}", mapping.path.substr(1), mapping.inode));
    held.set_bytes(mapping.end - mapping.begin);
    held.set_may_be_mpis(IsPrivateAndDoomed(mapping.inode));
  }

  void OfHugePages(const Mapping& mapping) {
    wire::Held& held = Hold(wire::Held::HUGE_PAGES, -1, "memory in huge pages");
    held.set_bytes(mapping.end - mapping.begin);
  }

  void OfMappedFile(const Mapping& mapping) {
    const std::string& path = mapping.path;
    if (path.starts_with("/memfd:") || path == "/dev/zero" || path.starts_with("/[aio]")) return;
    if (path.starts_with(kSharedMemory)) {
      // What is not MPI's travels: by name, or deleted in CRIU's image.
      if (!BeginsWithOneOf(path.substr(kSharedMemory.size()), kMpiShared)) return;
      wire::Held& held = Hold(wire::Held::SHARED_MEMORY, -1, path);
      held.set_bytes(mapping.end - mapping.begin);
      return held.set_may_be_mpis(true);
    }
    if (path.starts_with("/dev/") || path.starts_with("/dmabuf")) {
      wire::Held& held = Hold(wire::Held::DEVICE_MAPPING, -1, path);
      return held.set_may_be_mpis(BeginsWithOneOf(path, kMpiDevices));
    }
    if (all_ && !mapping.deleted) AddMapped(mapping);
  }

  // The very file that is mapped, also when another lies at its path by now.
  void AddMapped(const Mapping& mapping) {
    const bool known = std::ranges::any_of(
        facts_.mapped(), [&](const wire::FileFacts& file) { return file.path() == mapping.path; });
    if (known) return;
    if (!files_) files_ = std::make_unique<Files>(process_);
    wire::FileFacts& file = *facts_.add_mapped();
    file = files_->At(mapping.path, false);
    file.set_code(code_.contains(mapping.path));
    const std::string link =
        std::format("{}/map_files/{:x}-{:x}", process_, mapping.begin, mapping.end);
    const Fd mapped(open(link.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info{};
    if (mapped && fstat(mapped.get(), &info) == 0) {
      file.set_build_id(BuildIdOf(mapped.get()));
      file.set_size(static_cast<std::uint64_t>(info.st_size));
    } else {
      file = files_->At(mapping.path, true);
      file.set_code(code_.contains(mapping.path));
    }
  }

  const RankToLookAt& rank_;
  const bool all_;
  wire::RankFacts facts_;
  pid_t pid_ = 0;
  std::string process_;  // "/proc/PID"
  std::string name_;
  std::unique_ptr<Files> files_;
  std::unique_ptr<Sockets> sockets_;
  std::set<std::uint64_t> own_sockets_;
  std::set<std::string> code_;  // paths of which something is mapped to be executed
};

}  // namespace

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
    mapping.path = WithoutDeleted(std::move(mapping.path));
    mappings.push_back(std::move(mapping));
  }
  return mappings;
}

wire::RankFacts LookAtRank(const RankToLookAt& rank) { return Look(rank, true).Take(); }
wire::RankFacts LookAtHoldings(const RankToLookAt& rank) { return Look(rank, false).Take(); }

}  // namespace xmpi::preflight
