#include "os/slot.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <format>

#include "base/limits.h"
#include "os/namespaces.h"
#include "os/pidfd.h"
#include "os/slot_init.h"
#include "os/slot_protocol.h"

namespace xmpi::os {
namespace {

constexpr int kSocketBufferBytes = 1 << 20;  // exits of a few hundred ranks at once

// The number of Options::kept in the init.
int KeptNumber(int socket) { return socket == 3 ? 4 : 3; }

// Away from the terminal and from every descriptor of the proxy but the socket and what it keeps.
void LeaveProxy(const Fd& socket, int kept) {
  setsid();
  prctl(PR_SET_NAME, "xmpi-slot-init");
  const int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd <= 2; ++fd) dup2(null, fd);
  const int number = KeptNumber(socket.get());
  if (kept >= 0 && kept != number) dup3(kept, number, O_CLOEXEC);
  if (kept < 0) close(number);
  const auto low = static_cast<unsigned>(std::min(socket.get(), number));
  const auto high = static_cast<unsigned>(std::max(socket.get(), number));
  if (low > 3) close_range(3, low - 1, 0);
  if (high > low + 1) close_range(low + 1, high - 1, 0);
  close_range(high + 1, ~0u, 0);
  if (chdir("/") != 0) _exit(1);
}

[[noreturn]] void RunInNamespaces(Fd socket, int kept) {
  if (Result<> mounts = SetUpSlotMounts(); !mounts) {
    const SlotEvent failed{.kind = EventKind::kFailed, .text = mounts.error().message};
    (void)SendMessage(socket.get(), EncodeEvent(failed), {}, 0);
    _exit(1);
  }
  LeaveProxy(socket, kept);  // last: the ranks' /dev/null must be of the slot's own mounts
  RunSlotInit(std::move(socket), true, {});
}

// In the process between the proxy and the init. It has one thread, whatever the proxy has, so a
// bare clone3 is safe here; CLONE_PARENT makes the init the proxy's own child.
[[noreturn]] void ForkInit(Fd socket, bool namespaces, int kept) {
  std::string reason = "namespaces are switched off";
  int pidfd = -1;
  if (namespaces) {
    clone_args args{};
    args.flags = CLONE_PARENT | CLONE_NEWPID | CLONE_NEWNS | CLONE_PIDFD;
    args.pidfd = reinterpret_cast<std::uint64_t>(&pidfd);
    const long pid = syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0) RunInNamespaces(std::move(socket), kept);
    reason = std::strerror(errno);
    namespaces = pid > 0;
  }
  if (!namespaces) pidfd = PidfdOpen(getpid());
  const SlotEvent forked{.kind = EventKind::kForked};
  (void)SendMessage(socket.get(), EncodeEvent(forked), {pidfd}, 0);
  if (namespaces) _exit(0);
  LeaveProxy(socket, kept);
  RunSlotInit(
      std::move(socket), false,
      {std::format("no PID and mount namespaces ({}): a rank can move only to where its process "
                   "ids are free",
                   reason)});
}

}  // namespace

Result<std::unique_ptr<Slot>> Slot::Start(Options options) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return std::unexpected(ErrnoError("socketpair for the slot"));
  }
  std::unique_ptr<Slot> slot(new Slot);
  slot->socket_ = Fd(ends[0]);
  Fd theirs(ends[1]);
  for (int end : ends) {
    setsockopt(end, SOL_SOCKET, SO_SNDBUF, &kSocketBufferBytes, sizeof(kSocketBufferBytes));
  }
  const pid_t between = fork();
  if (between < 0) return std::unexpected(ErrnoError("fork for the slot"));
  if (between == 0) {
    slot->socket_.Close();
    ForkInit(std::move(theirs), options.namespaces, options.kept);
  }
  const int kept_number = KeptNumber(theirs.get());
  theirs.Close();
  if (Result<> hello = slot->Hello(); !hello) {
    return std::unexpected(WithContext("cannot set up the slot", hello.error()));
  }
  if (slot->init_pid_ != between) waitpid(between, nullptr, 0);
  slot->namespaces_ = slot->init_pid_ != between;
  if (options.kept >= 0) {
    slot->kept_path_ =
        std::format("/proc/{}/fd/{}", slot->namespaces_ ? 1 : slot->init_pid_, kept_number);
  }
  return slot;
}

// The pidfd comes from the process between, the hello from the init, in either order.
Result<> Slot::Hello() {
  const auto deadline = std::chrono::steady_clock::now() + limits::kSlotStart;
  while (!proc_ || !pidfd_) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd wait{socket_.get(), POLLIN, 0};
    if (left.count() <= 0 || poll(&wait, 1, static_cast<int>(left.count())) == 0) {
      return Fail(ErrorCode::kTimeout, "its init does not answer");
    }
    XMPI_ASSIGN_OR_RETURN(Message message, ReceiveMessage(socket_.get(), 0));
    if (message.closed) return Fail("its init ended at once");
    XMPI_ASSIGN_OR_RETURN(SlotEvent event, DecodeEvent(message.bytes));
    if (event.kind == EventKind::kFailed) return Fail(event.text);
    if (message.fds.empty()) return Fail("its init sent no descriptor");
    if (event.kind == EventKind::kForked) {
      pidfd_ = std::move(message.fds[0]);
      XMPI_ASSIGN_OR_RETURN(init_pid_, HostPid(pidfd_.get()));
    } else {
      proc_ = std::move(message.fds[0]);
      for (std::size_t at = 0, end; (end = event.text.find('\n', at)) != std::string::npos;
           at = end + 1) {
        lost_.push_back(event.text.substr(at, end - at));
      }
    }
  }
  return {};
}

// The socket's end is what makes the init end, after everything else in the slot. A killed init
// would close what it holds while the ranks still run.
Slot::~Slot() {
  socket_.Close();
  if (!pidfd_) return;
  pollfd wait{pidfd_.get(), POLLIN, 0};
  const std::chrono::milliseconds patience = limits::kSlotEnd;
  if (namespaces_ && poll(&wait, 1, static_cast<int>(patience.count())) == 0)
    PidfdSendSignal(pidfd_.get(), SIGKILL);
  siginfo_t info;
  waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED);
}

void Slot::Spawn(const SpawnRequest& request, SpawnDone done) {
  std::vector<int> fds;
  const std::string body = EncodeSpawn(request);
  const Fd memory(memfd_create("spawn", MFD_CLOEXEC));
  if (!memory || write(memory.get(), body.data(), body.size()) != std::ssize(body)) {
    return done(std::unexpected(ErrnoError("memfd for the slot")));
  }
  fds.push_back(memory.get());
  for (const SpawnFd& fd : request.fds) {
    if (fd.fd >= 0) fds.push_back(fd.fd);
  }
  SpawnRequest names;  // what an error message needs of it
  names.argv = request.argv;
  names.cwd = request.cwd;
  Send(RequestKind::kSpawn, 0, fds, {std::move(done), std::move(names)});
}

void Slot::Adopt(pid_t pid, SpawnDone done) {
  Send(RequestKind::kAdopt, pid, {}, {std::move(done), {}});
}

Result<std::uint32_t> Slot::Hold(int fd) {
  if (!socket_) return Fail(ErrorCode::kUnreachable, "the slot is gone");
  const std::uint32_t id = next_id_++;
  XMPI_RETURN_IF_ERROR(Tell(id, RequestKind::kHold, 0, {fd}));
  return id;
}

void Slot::LetGo(std::uint32_t held) {
  if (socket_) (void)Tell(next_id_++, RequestKind::kLetGo, held, {});
}

// The init always reads and never waits for us, so a full socket drains by itself.
Result<> Slot::Tell(std::uint32_t id, RequestKind kind, std::uint32_t subject,
                    const std::vector<int>& fds) {
  const std::uint32_t words[3] = {id, static_cast<std::uint32_t>(kind), subject};
  return SendMessage(socket_.get(), {reinterpret_cast<const char*>(words), sizeof(words)}, fds, 0);
}

void Slot::Send(RequestKind kind, pid_t pid, const std::vector<int>& fds, Waiting waiting) {
  if (!socket_) return waiting.done(Fail(ErrorCode::kUnreachable, "the slot is gone"));
  const std::uint32_t id = next_id_++;
  if (Result<> sent = Tell(id, kind, static_cast<std::uint32_t>(pid), fds); !sent)
    return waiting.done(std::unexpected(sent.error()));
  waiting_.emplace(id, std::move(waiting));
}

void Slot::Dispatch() {
  while (socket_) {
    Result<Message> message = ReceiveMessage(socket_.get(), MSG_DONTWAIT);
    if (!message) return Lose(message.error());
    if (message->would_block) return;
    if (message->closed) return Lose(Error{ErrorCode::kUnreachable, "the slot's init ended"});
    Result<SlotEvent> event = DecodeEvent(message->bytes);
    if (!event) return Lose(event.error());
    Handle(*event, message->fds.empty() ? Fd() : std::move(message->fds[0]));
  }
}

void Slot::Handle(const SlotEvent& event, Fd fd) {
  if (event.kind == EventKind::kExited) {
    if (on_exit_) on_exit_(SlotExit{event.pid, event.value});
    return;
  }
  const auto found = waiting_.find(event.id);
  if (found == waiting_.end()) return;
  const Waiting waiting = std::move(found->second);
  waiting_.erase(found);
  if (event.kind == EventKind::kStarted) {
    // A process that is gone already still has been started; its exit event follows.
    const pid_t host_pid = HostPid(fd.get()).value_or(0);
    return waiting.done(Spawned{event.pid, host_pid, std::move(fd)});
  }
  waiting.done(Fail(
      std::format("{}: {}", Describe(event.stage, waiting.names), std::strerror(event.value))));
}

void Slot::Lose(Error error) {
  socket_.Close();
  auto waiting = std::exchange(waiting_, {});
  for (auto& [id, request] : waiting) request.done(std::unexpected(error));
  if (on_lost_) on_lost_(std::move(error));
}

bool Slot::DispatchUntil(const std::function<bool()>& finished,
                         std::chrono::milliseconds deadline) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  while (!finished()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0 || !socket_) return false;
    pollfd wait{socket_.get(), POLLIN, 0};
    poll(&wait, 1, static_cast<int>(left.count()));
    Dispatch();
  }
  return true;
}

}  // namespace xmpi::os
