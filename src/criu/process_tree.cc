#include "criu/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <format>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "base/fd.h"
#include "os/pidfd.h"

namespace xmpi::criu {
namespace {

// The numeric names in a directory of /proc.
std::vector<int> Numbers(int proc_fd, const std::string& path) {
  std::vector<int> numbers;
  Fd directory(openat(proc_fd, path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* stream = directory ? fdopendir(directory.get()) : nullptr;
  if (stream == nullptr) return numbers;
  directory.Release();
  while (const dirent* entry = readdir(stream)) {
    char* end = nullptr;
    const long number = std::strtol(entry->d_name, &end, 10);
    if (end != entry->d_name && *end == '\0') numbers.push_back(static_cast<int>(number));
  }
  closedir(stream);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::optional<Process> ReadProcess(int proc_fd, pid_t pid) {
  const Fd file(openat(proc_fd, std::format("{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> buffer;
  const ssize_t size = file ? read(file.get(), buffer.data(), buffer.size()) : -1;
  if (size <= 0) return std::nullopt;
  const std::string text(buffer.data(), static_cast<std::size_t>(size));
  // The name is in parentheses and may hold any character, so the last one counts.
  const std::size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return std::nullopt;
  Process process{.pid = pid, .name = text.substr(open + 1, close - open - 1)};
  std::istringstream rest(text.substr(close + 1));
  rest >> process.state >> process.parent >> process.group >> process.session;
  return process;
}

std::vector<Process> ReadAllProcesses(int proc_fd) {
  std::vector<Process> all;
  for (pid_t pid : Numbers(proc_fd, ".")) {
    if (std::optional<Process> process = ReadProcess(proc_fd, pid)) all.push_back(*process);
  }
  return all;
}

bool HasStopPending(int proc_fd, pid_t pid) {
  const std::string path = std::format("{}/status", pid);
  const Fd file(openat(proc_fd, path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(4096, '\0');
  const ssize_t size = file ? read(file.get(), text.data(), text.size()) : 0;
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  for (const char* key : {"SigPnd:", "ShdPnd:"}) {
    const std::size_t at = text.find(key);
    if (at == std::string::npos) continue;
    const std::uint64_t pending = std::strtoull(text.c_str() + at + 7, nullptr, 16);
    if ((pending >> (SIGSTOP - 1) & 1) != 0) return true;
  }
  return false;
}

bool IsSettled(int proc_fd, pid_t root, bool stopped) {
  const std::vector<Process> tree = ReadTree(proc_fd, root);
  return std::all_of(tree.begin(), tree.end(), [&](const Process& process) {
    if (process.state == 'Z' || process.state == 'T') return true;
    return !stopped && process.state != 't' && !HasStopPending(proc_fd, process.pid);
  });
}

}  // namespace

std::vector<Process> ReadTree(int proc_fd, pid_t root) {
  const std::vector<Process> all = ReadAllProcesses(proc_fd);
  std::vector<Process> tree;
  for (const Process& process : all) {
    if (process.pid == root) tree.push_back(process);
  }
  for (std::size_t i = 0; i < tree.size(); ++i) {
    for (const Process& process : all) {
      if (process.parent == tree[i].pid) tree.push_back(process);
    }
  }
  for (Process& process : tree) {
    process.threads = Numbers(proc_fd, std::format("{}/task", process.pid));
  }
  return tree;
}

bool WaitSettled(int proc_fd, pid_t root, bool stopped, std::chrono::milliseconds deadline) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  while (!IsSettled(proc_fd, root, stopped)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  return true;
}

ProcessState StateOf(int proc_fd, pid_t root) {
  const std::optional<Process> process = ReadProcess(proc_fd, root);
  if (!process || process->state == 'Z' || process->state == 'X') return ProcessState::kGone;
  // 't' is a tracer's business that is about to end; what counts is whether SIGCONT is needed.
  return process->state == 'T' ? ProcessState::kStopped : ProcessState::kRunning;
}

Result<> SignalTree(int proc_fd, pid_t root, int signal, bool only_stopped) {
  std::vector<Process> tree = ReadTree(proc_fd, root);
  if (tree.empty()) return Fail(std::format("process {} of the slot is gone", root));
  std::reverse(tree.begin(), tree.end());
  for (const Process& process : tree) {
    if (only_stopped && process.state != 'T') continue;
    // The descriptor pins the process that was looked at: its PID cannot be reused meanwhile.
    const std::string path = std::to_string(process.pid);
    const Fd handle(openat(proc_fd, path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!handle) continue;
    if (os::PidfdSendSignal(handle.get(), signal) != 0 && errno != ESRCH) {
      return std::unexpected(ErrnoError(std::format("signal process {}", process.pid)));
    }
  }
  return {};
}

std::vector<pid_t> UsedPids(const std::vector<Process>& tree) {
  std::vector<pid_t> used;
  for (const Process& process : tree) {
    used.insert(used.end(), {process.pid, process.group, process.session});
    used.insert(used.end(), process.threads.begin(), process.threads.end());
  }
  std::erase_if(used, [](pid_t pid) { return pid <= 0; });  // a session from outside shows as 0
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  return used;
}

std::vector<Process> Strays(int proc_fd, const std::vector<pid_t>& roots) {
  std::set<pid_t> known = {1};
  for (pid_t root : roots) {
    for (const Process& process : ReadTree(proc_fd, root)) known.insert(process.pid);
  }
  std::vector<Process> strays = ReadAllProcesses(proc_fd);
  std::erase_if(strays, [&](const Process& process) {
    const bool is_criu = process.parent == 1 && process.name == "criu";
    return is_criu || process.state == 'Z' || known.contains(process.pid);
  });
  return strays;
}

std::string ReadLinkAt(int proc_fd, const std::string& link) {
  std::array<char, 4096> target;
  const ssize_t size = readlinkat(proc_fd, link.c_str(), target.data(), target.size());
  return {target.data(), size > 0 ? static_cast<std::size_t>(size) : 0};
}

std::vector<OpenFd> ReadFds(int proc_fd, const std::vector<Process>& tree) {
  std::vector<OpenFd> fds;
  for (const Process& process : tree) {
    const std::string directory = std::format("{}/fd", process.pid);
    for (int fd : Numbers(proc_fd, directory)) {
      std::string target = ReadLinkAt(proc_fd, std::format("{}/{}", directory, fd));
      if (!target.empty()) fds.push_back({process.pid, fd, std::move(target)});
    }
  }
  return fds;
}

}  // namespace xmpi::criu
