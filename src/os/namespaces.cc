#include "os/namespaces.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <format>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "os/slot_protocol.h"

namespace xmpi::os {
namespace {

// Whether "/" is the root of a mount, and not some directory that we were chrooted into.
Result<bool> RootIsMount() {
  struct statx info{};
  if (statx(AT_FDCWD, "/", AT_NO_AUTOMOUNT, STATX_TYPE, &info) != 0) {
    return std::unexpected(ErrnoError("statx /"));
  }
  return (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

// Makes the directory that is our root by chroot a mount of its own, and the root of the mount
// namespace. setns to our own namespace is what takes us to its true root, on which we mount.
Result<> MakeRootAMount() {
  const Fd tree(open_tree(AT_FDCWD, "/", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE));
  if (!tree) return std::unexpected(ErrnoError("open_tree /"));
  const Fd own(open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC));
  if (!own || setns(own.get(), CLONE_NEWNS) != 0) {
    return std::unexpected(ErrnoError("setns to the own mount namespace"));
  }
  if (move_mount(tree.get(), "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) != 0) {
    return std::unexpected(ErrnoError("move_mount to /"));
  }
  if (fchdir(tree.get()) != 0) return std::unexpected(ErrnoError("fchdir to the new root"));
  if (syscall(SYS_pivot_root, ".", ".") != 0) return std::unexpected(ErrnoError("pivot_root"));
  if (umount2(".", MNT_DETACH) != 0) return std::unexpected(ErrnoError("umount the old root"));
  if (chdir("/") != 0) return std::unexpected(ErrnoError("chdir /"));
  return {};
}

template <class Function>
Result<> ForEachThread(pid_t host_pid, Function&& function) {
  std::error_code error;
  const std::string path = std::format("/proc/{}/task", host_pid);
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    XMPI_RETURN_IF_ERROR(function(std::atoi(entry.path().filename().c_str())));
  }
  if (error) return Fail(std::format("{}: {}", path, error.message()));
  return {};
}

// The last number of the line "NSpid:\t123\t45\t7": the PID in the innermost namespace.
pid_t InnermostPid(const std::string& status_path) {
  std::ifstream status(status_path);
  std::string line;
  while (std::getline(status, line)) {
    if (!line.starts_with("NSpid:")) continue;
    return std::atoi(line.c_str() + line.find_last_of(" \t") + 1);
  }
  return 0;
}

// POSIX shared memory of the slot's own, as large as the node's: what killed ranks leave in it ends
// with the slot.
Result<> MountOwnSharedMemory() {
  struct statfs info{};
  if (statfs("/dev/shm", &info) != 0 || info.f_type != TMPFS_MAGIC) return {};
  const std::string options =
      std::format("mode=1777,size={}", info.f_blocks * static_cast<std::uint64_t>(info.f_bsize));
  if (mount("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
    return std::unexpected(ErrnoError("mount /dev/shm"));
  }
  return {};
}

// On failure errno says why.
Result<Fd> MakeTmpfs(std::uint64_t limit_bytes) {
  const Fd context(fsopen("tmpfs", FSOPEN_CLOEXEC));
  if (!context) return std::unexpected(ErrnoError("fsopen tmpfs"));
  const std::string size = limit_bytes != 0 ? std::to_string(limit_bytes) : "90%";
  if (fsconfig(context.get(), FSCONFIG_SET_STRING, "size", size.c_str(), 0) != 0 ||
      fsconfig(context.get(), FSCONFIG_SET_STRING, "mode", "0700", 0) != 0 ||
      fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) {
    return std::unexpected(ErrnoError("make a tmpfs"));
  }
  const Fd mount_fd(fsmount(context.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
  if (!mount_fd) return std::unexpected(ErrnoError("fsmount tmpfs"));
  // The mount's own descriptor is O_PATH, which cannot be read or synced; this one can.
  Fd directory(openat(mount_fd.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return std::unexpected(ErrnoError("open the tmpfs"));
  return directory;
}

bool WriteFile(const char* path, std::string_view text) {
  const Fd file(open(path, O_WRONLY | O_CLOEXEC));
  return file && write(file.get(), text.data(), text.size()) == std::ssize(text);
}

// Into a user namespace in which we are who we are, with a mount namespace to make mounts in.
Result<> EnterUserNamespace() {
  const std::string user = std::format("{0} {0} 1", geteuid());
  const std::string group = std::format("{0} {0} 1", getegid());
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 || !WriteFile("/proc/self/uid_map", user) ||
      !WriteFile("/proc/self/setgroups", "deny") || !WriteFile("/proc/self/gid_map", group)) {
    return std::unexpected(ErrnoError("make a user namespace"));
  }
  return {};
}

// Only a process with one thread may enter a user namespace, and it must not stay there. The mount
// that it hands over lives on, and its files are ours.
Result<Fd> MakeTmpfsInUserNamespace(std::uint64_t limit_bytes) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return std::unexpected(ErrnoError("socketpair"));
  }
  const Fd ours(ends[0]);
  Fd theirs(ends[1]);
  const pid_t maker = fork();
  if (maker < 0) return std::unexpected(ErrnoError("fork"));
  if (maker == 0) {
    const Result<> entered = EnterUserNamespace();
    const Result<Fd> made = entered ? MakeTmpfs(limit_bytes) : std::unexpected(entered.error());
    std::vector<int> fds;
    if (made) fds.push_back(made->get());
    (void)SendMessage(theirs.get(), made ? "made" : made.error().message, fds, 0);
    _exit(0);
  }
  theirs.Close();
  Result<Message> answer = ReceiveMessage(ours.get(), 0);
  waitpid(maker, nullptr, 0);
  if (!answer) return std::unexpected(answer.error());
  if (!answer->fds.empty()) return std::move(answer->fds[0]);
  return Fail(std::format(
      "a plain user needs a user namespace for a directory in memory ({}); allow it as root "
      "(`sysctl user.max_user_namespaces=10000`, on Ubuntu also "
      "`sysctl kernel.apparmor_restrict_unprivileged_userns=0`), or start the job as root",
      answer->closed ? "its maker ended" : answer->bytes));
}

}  // namespace

Result<> SetUpSlotMounts() {
  if (mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0 && errno != EINVAL) {
    return std::unexpected(ErrnoError("make the mounts slave"));
  }
  XMPI_ASSIGN_OR_RETURN(const bool root_is_mount, RootIsMount());
  if (!root_is_mount) {
    XMPI_RETURN_IF_ERROR(MakeRootAMount());
    if (mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) {
      return std::unexpected(ErrnoError("make the mounts slave"));
    }
  }
  if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0) {
    return std::unexpected(ErrnoError("mount /proc"));
  }
  return MountOwnSharedMemory();
}

Result<Fd> EnterChildTimeNamespace() {
  Fd own(open("/proc/self/ns/time", O_RDONLY | O_CLOEXEC));
  if (!own) return std::unexpected(ErrnoError("/proc/self/ns/time"));
  // The new namespace begins with the offsets of ours, so its clocks are the node's.
  if (unshare(CLONE_NEWTIME) != 0) return std::unexpected(ErrnoError("unshare time"));
  return own;
}

Result<> LeaveChildTimeNamespace(const Fd& own) {
  if (setns(own.get(), CLONE_NEWTIME) != 0) return std::unexpected(ErrnoError("setns time"));
  return {};
}

Result<Fd> MakeMemoryDirectory(std::uint64_t limit_bytes) {
  Result<Fd> made = MakeTmpfs(limit_bytes);
  if (made || errno != EPERM) return made;
  return MakeTmpfsInUserNamespace(limit_bytes);
}

Result<pid_t> HostPid(int pidfd) {
  std::ifstream info(std::format("/proc/self/fdinfo/{}", pidfd));
  std::string line;
  while (std::getline(info, line)) {
    if (!line.starts_with("Pid:")) continue;
    const pid_t pid = std::atoi(line.c_str() + 4);
    if (pid > 0) return pid;
  }
  return Fail("the process of this pidfd is gone or not visible from here");
}

Result<pid_t> HostTid(pid_t host_pid, pid_t tid) {
  pid_t found = 0;
  XMPI_RETURN_IF_ERROR(ForEachThread(host_pid, [&](pid_t thread) -> Result<> {
    const std::string path = std::format("/proc/{}/task/{}/status", host_pid, thread);
    if (found == 0 && InnermostPid(path) == tid) found = thread;
    return {};
  }));
  if (found == 0) return Fail(std::format("process {} has no thread {}", host_pid, tid));
  return found;
}

Result<> BindProcess(pid_t host_pid, std::span<const int> cpus) {
  if (cpus.empty()) return {};
  const int count = *std::max_element(cpus.begin(), cpus.end()) + 1;
  cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(count));
  const std::size_t size = CPU_ALLOC_SIZE(static_cast<std::size_t>(count));
  CPU_ZERO_S(size, set);
  for (int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), size, set);
  Result<> result = ForEachThread(host_pid, [&](pid_t thread) -> Result<> {
    if (sched_setaffinity(thread, size, set) == 0) return {};
    return std::unexpected(ErrnoError(std::format("bind thread {} to its cores", thread)));
  });
  CPU_FREE(set);
  return result;
}

pid_t PidsFreeAfter(std::span<const pid_t> used, pid_t room, pid_t pid_max) {
  std::vector<pid_t> sorted(used.begin(), used.end());
  sorted.push_back(pid_max);
  std::sort(sorted.begin(), sorted.end());
  // Low numbers are skipped: the kernel never gives those below 300 after a wrap, and ranks that
  // start first live there.
  pid_t after = 1000;
  for (pid_t pid : sorted) {
    if (pid <= after) continue;
    if (pid - after > room) return after;
    after = pid;
  }
  return 0;
}

}  // namespace xmpi::os
