#include "os/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <format>

#include "os/pidfd.h"

extern char** environ;

namespace xmpi::os {
namespace {

constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);

struct Actions {
  Actions() { posix_spawn_file_actions_init(&value); }
  ~Actions() { posix_spawn_file_actions_destroy(&value); }
  Actions(const Actions&) = delete;
  Actions& operator=(const Actions&) = delete;
  posix_spawn_file_actions_t value;
};

struct Attributes {
  Attributes() {
    sigset_t all;
    sigset_t none;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_init(&value);
    posix_spawnattr_setflags(
        &value, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setpgroup(&value, 0);
    posix_spawnattr_setsigdefault(&value, &all);
    posix_spawnattr_setsigmask(&value, &none);
  }
  ~Attributes() { posix_spawnattr_destroy(&value); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  posix_spawnattr_t value;
};

// Moves the sources out of the targets' way first, then gives each its number; all else closes.
Result<std::vector<Fd>> Arrange(const std::vector<SpawnOptions::Inherited>& fds, Actions* actions) {
  int top = 2;
  for (const auto& fd : fds) top = std::max(top, fd.target);
  std::vector<bool> used(static_cast<std::size_t>(top) + 1);
  std::vector<Fd> sources;
  for (const auto& fd : fds) {
    sources.emplace_back(::fcntl(fd.source, F_DUPFD_CLOEXEC, top + 1));
    if (!sources.back()) return std::unexpected(ErrnoError("spawn: duplicate a descriptor"));
    posix_spawn_file_actions_adddup2(&actions->value, sources.back().get(), fd.target);
    used[static_cast<std::size_t>(fd.target)] = true;
  }
  for (int fd = 0; fd <= top; ++fd) {
    if (used[static_cast<std::size_t>(fd)]) continue;
    if (fd <= 2) {
      posix_spawn_file_actions_addopen(&actions->value, fd, "/dev/null", O_RDWR, 0);
    } else {
      posix_spawn_file_actions_addclose(&actions->value, fd);
    }
  }
  posix_spawn_file_actions_addclosefrom_np(&actions->value, top + 1);
  return sources;
}

}  // namespace

struct Process::State {
  State(asio::io_context& loop, pid_t child, int pidfd, OnExit callback)
      : pid(child), descriptor(loop, pidfd), on_exit(std::move(callback)) {}
  const pid_t pid;
  asio::posix::stream_descriptor descriptor;
  OnExit on_exit;  // empty once the Process is destroyed
  bool running = true;
};

Result<std::unique_ptr<Process>> Process::Spawn(asio::io_context& loop, const SpawnOptions& options,
                                                OnExit on_exit) {
  Actions actions;
  const Attributes attributes;
  XMPI_ASSIGN_OR_RETURN(const std::vector<Fd> sources, Arrange(options.fds, &actions));
  std::vector<char*> argv;
  for (const auto& word : options.argv) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t pid = 0;
  errno = posix_spawnp(&pid, argv[0], &actions.value, &attributes.value, argv.data(), environ);
  if (errno != 0) return std::unexpected(ErrnoError(std::format("start {}", options.argv[0])));
  // Not yet reaped, so the number still means this child.
  const int pidfd = PidfdOpen(pid);
  if (pidfd < 0) {
    const Error error = ErrnoError("pidfd_open");
    ::kill(-pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return std::unexpected(error);
  }
  auto state = std::make_shared<State>(loop, pid, pidfd, std::move(on_exit));
  asio::co_spawn(loop, Watch(state), asio::detached);
  return std::unique_ptr<Process>(new Process(std::move(state)));
}

asio::awaitable<void> Process::Watch(std::shared_ptr<State> state) {
  co_await state->descriptor.async_wait(asio::posix::stream_descriptor::wait_read, kNoThrow);
  // As a zombie it still holds its number, and with it the number of its group.
  ::kill(-state->pid, SIGKILL);
  int status = 0;
  while (::waitpid(state->pid, &status, 0) < 0 && errno == EINTR) continue;
  state->running = false;
  if (state->on_exit) state->on_exit(status);
}

Process::~Process() {
  state_->on_exit = nullptr;
  Signal(SIGKILL);
}

pid_t Process::pid() const { return state_->pid; }
bool Process::running() const { return state_->running; }

void Process::Signal(int signal) {
  if (state_->running) ::kill(-state_->pid, signal);
}

Result<Pipe> MakePipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return std::unexpected(ErrnoError("pipe"));
  return Pipe{Fd(fds[0]), Fd(fds[1])};
}

std::string DescribeStatus(int status) {
  if (WIFSIGNALED(status)) {
    return std::format("signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  }
  return std::format("exit code {}", WEXITSTATUS(status));
}

}  // namespace xmpi::os
