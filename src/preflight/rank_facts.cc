#include "preflight/rank_facts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
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
#include "os/proc.h"
#include "preflight/files.h"
#include "preflight/sockets.h"

namespace xmpi::preflight {
namespace {

using os::Field;
using os::KilobytesField;
using os::Numbers;
using os::ReadLink;
using os::ReadText;
using std::string_view_literals::operator""sv;

constexpr std::string_view kSharedMemory = "/dev/shm/";
constexpr std::string_view kSecret = "/secretmem";    // of memfd_secret(2)
constexpr std::uint64_t kMessageQueues = 0x19800202;  // MQUEUE_MAGIC of the kernel's ipc/mqueue.c

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
    runs_mpi_ = RunsMpi(status);
    OfState(status);
    OfDescriptors();
    OfMappings();
    if (!all_) return;
    facts_.set_memory_bytes(facts_.memory_bytes() + KilobytesField(status, "RssAnon") +
                            KilobytesField(status, "RssShmem") + KilobytesField(status, "VmSwap") +
                            KilobytesField(status, "HugetlbPages"));
  }

  // Another process of the rank may have inherited what MPI opened, but will not close it.
  bool RunsMpi(const std::string& status) const {
    if (rank_.closing == nullptr) return false;
    const std::uint32_t mpi = rank_.closing->ProcessOf(rank_.rank);
    if (mpi == 0) return true;                           // not known: any may be it
    std::istringstream numbers(Field(status, "NSpid"));  // in every namespace, its own last
    std::uint32_t pid = 0;
    while (numbers >> pid) continue;
    return pid == mpi;
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
    for (const char* space : {"pid", "mnt", "net", "ipc", "uts", "user"}) {
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
    struct statfs system{};
    const std::string link = std::format("{}/fd/{}", process_, fd);
    if (stat(link.c_str(), &info) != 0) return;
    const bool special = S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode);
    if (special) return OfDevice(fd, target, info.st_rdev, has_master);
    if (S_ISFIFO(info.st_mode)) {
      Hold(wire::Held::NAMED_PIPE, fd, target);
    } else if (target.starts_with(kSecret)) {
      Hold(wire::Held::KERNEL_OBJECT, fd, std::string(kSecret));
    } else if (target.starts_with("/dmabuf")) {
      Hold(wire::Held::KERNEL_OBJECT, fd, target);
    } else if (statfs(link.c_str(), &system) == 0 &&
               static_cast<std::uint64_t>(system.f_type) == kMessageQueues) {
      Hold(wire::Held::KERNEL_OBJECT, fd, "the POSIX message queue " + target);
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
    const bool closing = WillClose(fd, inode, socket);
    const auto kind = closing && !runs_mpi_ ? wire::Held::INHERITED : socket.kind;
    Hold(kind, fd, socket.text).set_may_be_mpis(closing && runs_mpi_);
  }

  // Without a list, as for a socket that is nowhere yet, it may be MPI's if it does not block: no
  // MPI library lets one of its own block it.
  bool WillClose(int fd, std::uint64_t inode, const SocketFacts& socket) const {
    if (rank_.closing == nullptr) return false;
    if (rank_.closing->Has(rank_.rank, inode, socket)) return true;
    const bool internet = socket.kind == wire::Held::TCP || socket.kind == wire::Held::UDP;
    const bool nowhere = socket.kind == wire::Held::TCP && socket.local.empty();
    const bool listed = rank_.closing->ProcessOf(rank_.rank) != 0;
    return (listed ? nowhere && runs_mpi_ : internet) && !IsBlocking(fd);
  }

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
        .set_may_be_mpis(runs_mpi_ && BeginsWithOneOf(path, kMpiDevices));
  }

  void OfMappings() {
    std::set<std::string> seen;
    const std::vector<os::Mapping> mappings = os::ParseMaps(os::ReadText(process_ + "/maps"));
    for (const os::Mapping& mapping : mappings) {
      if (mapping.executable) code_.insert(mapping.path);
    }
    for (const os::Mapping& mapping : mappings) {
      if (mapping.path.starts_with("/SYSV")) {
        if (seen.insert(std::to_string(mapping.inode)).second) OfSysv(mapping);
      } else if (mapping.path.starts_with("/anon_hugepage")) {
        OfHugePages(mapping);
      } else if (mapping.path.starts_with("anon_inode:")) {
        if (seen.insert(mapping.path).second && !Holds(mapping.path)) OfObject(-1, mapping.path);
      } else if (mapping.path.starts_with('/') && seen.insert(mapping.path).second) {
        OfMappedFile(mapping);
      }
    }
  }

  // A ring may be mapped without being open.
  bool Holds(const std::string& object) const {
    return std::ranges::any_of(facts_.holds(), [&](const wire::Held& held) {
      return held.pid() == static_cast<std::uint32_t>(pid_) && held.name() == object;
    });
  }

  void OfSysv(const os::Mapping& mapping) {
    wire::Held& held = Hold(wire::Held::SYSV_SHM, -1,
                            std::format("{}, shmid {}", mapping.path.substr(1), mapping.inode));
    held.set_bytes(mapping.end - mapping.begin);
    held.set_may_be_mpis(runs_mpi_ && IsPrivateAndDoomed(mapping.inode));
  }

  void OfHugePages(const os::Mapping& mapping) {
    wire::Held& held = Hold(wire::Held::HUGE_PAGES, -1, "memory in huge pages");
    held.set_bytes(mapping.end - mapping.begin);
  }

  void OfMappedFile(const os::Mapping& mapping) {
    const std::string& path = mapping.path;
    if (path.starts_with("/memfd:") || path == "/dev/zero" || path.starts_with("/[aio]")) return;
    if (path.starts_with(kSharedMemory)) {
      // What is not MPI's travels: by name, or deleted in CRIU's image.
      if (!IsMpisSharedMemory(path)) return;
      wire::Held& held = Hold(wire::Held::SHARED_MEMORY, -1, path);
      held.set_bytes(mapping.end - mapping.begin);
      return held.set_may_be_mpis(runs_mpi_);
    }
    if (path == kSecret) {
      if (!Holds(path)) Hold(wire::Held::KERNEL_OBJECT, -1, path);
      return;
    }
    if (path.starts_with("/dev/") || path.starts_with("/dmabuf")) {
      wire::Held& held = Hold(wire::Held::DEVICE_MAPPING, -1, path);
      return held.set_may_be_mpis(runs_mpi_ && BeginsWithOneOf(path, kMpiDevices));
    }
    if (all_ && !mapping.deleted && code_.contains(path)) AddMapped(mapping);
  }

  // The very file that is mapped, also when another lies at its path by now.
  void AddMapped(const os::Mapping& mapping) {
    const bool known = std::ranges::any_of(
        facts_.mapped(), [&](const wire::FileFacts& file) { return file.path() == mapping.path; });
    if (known) return;
    wire::FileFacts& file = *facts_.add_mapped();
    file.set_path(mapping.path);
    const std::string link =
        std::format("{}/map_files/{:x}-{:x}", process_, mapping.begin, mapping.end);
    const Fd mapped(open(link.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info{};
    if (mapped && fstat(mapped.get(), &info) == 0) {
      file.set_build_id(BuildIdOf(mapped.get()));
      file.set_size(static_cast<std::uint64_t>(info.st_size));
    } else {
      file = Files(process_).At(mapping.path);
    }
  }

  const RankToLookAt& rank_;
  const bool all_;
  wire::RankFacts facts_;
  pid_t pid_ = 0;
  std::string process_;  // "/proc/PID"
  std::string name_;
  bool runs_mpi_ = false;
  std::unique_ptr<Sockets> sockets_;
  std::set<std::uint64_t> own_sockets_;
  std::set<std::string> code_;  // paths of which something is mapped to be executed
};

}  // namespace

bool IsMpisSharedMemory(std::string_view path) {
  return path.starts_with(kSharedMemory) &&
         BeginsWithOneOf(path.substr(kSharedMemory.size()), kMpiShared);
}

wire::RankFacts LookAtRank(const RankToLookAt& rank) { return Look(rank, true).Take(); }
wire::RankFacts LookAtHoldings(const RankToLookAt& rank) { return Look(rank, false).Take(); }

}  // namespace xmpi::preflight
