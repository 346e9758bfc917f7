#include "os/slot_init.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <format>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>

#include "os/namespaces.h"
#include "os/pidfd.h"
#include "os/slot_child.h"
#include "os/slot_protocol.h"

namespace xmpi::os {
namespace {

struct PendingSpawn {
  std::uint32_t id = 0;
  pid_t pid = 0;
  Fd pidfd;
  Fd status;  // end of file once exec has worked; a ChildFailure before that
};

class SlotInit {
 public:
  SlotInit(Fd socket, bool namespaces) : socket_(std::move(socket)), namespaces_(namespaces) {}

  [[noreturn]] void Run(std::vector<std::string> lost) {
    Prepare();
    SayHello(std::move(lost));
    while (Step()) {
    }
    EndAll();
    _exit(0);
  }

 private:
  struct Outgoing {
    SlotEvent event;
    Fd fd;
  };

  void Prepare() {
    sigset_t mask;
    sigfillset(&mask);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    signals_ = Fd(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!namespaces_) prctl(PR_SET_CHILD_SUBREAPER, 1);
  }

  void SayHello(std::vector<std::string> lost) {
    if (auto own = EnterChildTimeNamespace(); own && LeaveChildTimeNamespace(*own)) {
      time_namespaces_ = true;
    } else {
      lost.push_back(
          "no time namespaces: CLOCK_MONOTONIC and MPI_Wtime may jump for a rank that moves");
    }
    std::string text;
    for (const std::string& line : lost) text += line + "\n";
    Fd proc(open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    Post(SlotEvent{.kind = EventKind::kHello, .text = text}, std::move(proc));
  }

  // One round of waiting; false when the proxy is gone.
  bool Step() {
    std::vector<pollfd> waits;
    const short out = outbox_.empty() ? 0 : POLLOUT;
    waits.push_back({socket_.get(), static_cast<short>(POLLIN | out), 0});
    waits.push_back({signals_.get(), POLLIN, 0});
    for (const PendingSpawn& spawn : pending_) waits.push_back({spawn.status.get(), POLLIN, 0});
    if (poll(waits.data(), waits.size(), -1) < 0) return errno == EINTR;
    for (std::size_t i = waits.size(); i-- > 2;) {
      if (waits[i].revents != 0) Settle(i - 2);
    }
    if (waits[1].revents != 0) Reap();
    if ((waits[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && !Receive()) return false;
    return Flush();
  }

  bool Receive() {
    for (;;) {
      Result<Message> message = ReceiveMessage(socket_.get(), MSG_DONTWAIT);
      if (!message || message->closed) return false;
      if (message->would_block) return true;
      Obey(*message);
    }
  }

  void Obey(Message& message) {
    if (message.bytes.size() != 12) return;
    std::uint32_t words[3];
    message.bytes.copy(reinterpret_cast<char*>(words), sizeof(words));
    switch (static_cast<RequestKind>(words[1])) {
      case RequestKind::kSpawn:
        return Spawn(words[0], message.fds);
      case RequestKind::kAdopt:
        return Adopt(words[0], static_cast<pid_t>(words[2]));
      case RequestKind::kHold:
        if (!message.fds.empty()) held_[words[0]] = std::move(message.fds[0]);
        return;
      case RequestKind::kLetGo:
        held_.erase(words[2]);
        return;
    }
  }

  void Adopt(std::uint32_t id, pid_t pid) {
    Fd pidfd(PidfdOpen(pid));
    if (!pidfd) return Refuse(id, SpawnStage::kAdopt, errno);
    Post(SlotEvent{.kind = EventKind::kStarted, .id = id, .pid = pid}, std::move(pidfd));
  }

  void Spawn(std::uint32_t id, std::vector<Fd>& fds) {
    Result<SpawnRequest> request = ReadRequest(fds);
    if (!request) return Refuse(id, SpawnStage::kRequest, EINVAL);
    if (request->after_pid != 0 && namespaces_ && !SetLastPid(request->after_pid)) {
      return Refuse(id, SpawnStage::kPidHint, errno);
    }
    std::optional<Fd> own_time;
    if (request->own_time_namespace && time_namespaces_) {
      Result<Fd> own = EnterChildTimeNamespace();
      if (!own) return Refuse(id, SpawnStage::kTimeNamespace, errno);
      own_time = std::move(*own);
    }
    Fork(id, *request);
    if (own_time && !LeaveChildTimeNamespace(*own_time)) _exit(1);
  }

  Result<SpawnRequest> ReadRequest(std::vector<Fd>& fds) {
    if (fds.empty()) return Fail("no request");
    struct stat info{};
    if (fstat(fds[0].get(), &info) != 0) return std::unexpected(ErrnoError("fstat"));
    std::string body(static_cast<std::size_t>(info.st_size), '\0');
    if (pread(fds[0].get(), body.data(), body.size(), 0) != info.st_size) return Fail("short");
    XMPI_ASSIGN_OR_RETURN(SpawnRequest request, DecodeSpawn(body));
    std::size_t next = 1;
    for (SpawnFd& fd : request.fds) {
      if (fd.fd < 0) continue;
      if (next >= fds.size()) return Fail("a descriptor is missing");
      fd.fd = fds[next++].get();
    }
    return request;
  }

  static bool SetLastPid(pid_t pid) {
    const Fd file(open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC));
    const std::string text = std::to_string(pid);
    return file && write(file.get(), text.data(), text.size()) == std::ssize(text);
  }

  void Fork(std::uint32_t id, const SpawnRequest& request) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return Refuse(id, SpawnStage::kFork, errno);
    Fd read_end(ends[0]), write_end(ends[1]);
    const pid_t pid = fork();
    if (pid < 0) return Refuse(id, SpawnStage::kFork, errno);
    if (pid == 0) RunChild(request, std::move(write_end), !namespaces_);
    Fd pidfd(PidfdOpen(pid));
    pending_.push_back({id, pid, std::move(pidfd), std::move(read_end)});
  }

  // The new process has come to its exec, or has failed on the way.
  void Settle(std::size_t index) {
    PendingSpawn spawn = std::move(pending_[index]);
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(index));
    ChildFailure failure;
    const ssize_t size = read(spawn.status.get(), &failure, sizeof(failure));
    if (size == 0) {
      Post(SlotEvent{.kind = EventKind::kStarted, .id = spawn.id, .pid = spawn.pid},
           std::move(spawn.pidfd));
      return;
    }
    failed_.push_back(spawn.pid);
    const bool whole = size == static_cast<ssize_t>(sizeof(failure));
    Refuse(spawn.id, whole ? failure.stage : SpawnStage::kNone, whole ? failure.error : EIO);
  }

  void Reap() {
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof(info)) > 0) {
    }
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0;) {
      const auto spawn = std::find_if(pending_.begin(), pending_.end(),
                                      [pid](const PendingSpawn& p) { return p.pid == pid; });
      if (spawn != pending_.end()) {
        Settle(static_cast<std::size_t>(std::distance(pending_.begin(), spawn)));
      }
      // A process that never came to its exec was answered with its failure, not with an exit.
      if (std::erase(failed_, pid) != 0) continue;
      Post(SlotEvent{.kind = EventKind::kExited, .pid = pid, .value = status}, Fd());
    }
  }

  void Refuse(std::uint32_t id, SpawnStage stage, int error) {
    Post(SlotEvent{.kind = EventKind::kRefused, .id = id, .value = error, .stage = stage}, Fd());
  }

  void Post(SlotEvent event, Fd fd) {
    outbox_.push_back({std::move(event), std::move(fd)});
    Flush();
  }

  bool Flush() {
    while (!outbox_.empty()) {
      const Outgoing& next = outbox_.front();
      std::vector<int> fds;
      if (next.fd) fds.push_back(next.fd.get());
      Result<> sent = SendMessage(socket_.get(), EncodeEvent(next.event), fds, MSG_DONTWAIT);
      if (!sent) return sent.error().code == ErrorCode::kTimeout;
      outbox_.pop_front();
    }
    return true;
  }

  // What is held here is closed by our own end, which must be the last: the kernel ends the others
  // in a PID namespace only after it has closed our descriptors, and elsewhere not at all.
  void EndAll() {
    for (;;) {
      if (namespaces_) kill(-1, SIGKILL);
      if (!namespaces_) {
        for (pid_t pid : Descendants()) kill(pid, SIGKILL);
      }
      const pid_t reaped = waitpid(-1, nullptr, __WALL);
      if (reaped < 0 && errno == ECHILD) return;
    }
  }

  static std::vector<pid_t> Descendants() {
    std::vector<std::pair<pid_t, pid_t>> parents;  // child, parent
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
      const pid_t pid = std::atoi(entry.path().filename().c_str());
      if (pid <= 0) continue;
      std::ifstream stat(entry.path() / "stat");
      std::string text((std::istreambuf_iterator<char>(stat)), {});
      const std::size_t end = text.rfind(')');
      if (end == std::string::npos || text.size() < end + 5) continue;
      parents.emplace_back(pid, std::atoi(text.c_str() + end + 4));
    }
    std::vector<pid_t> found{getpid()};
    for (std::size_t i = 0; i < found.size(); ++i) {
      for (const auto& [child, parent] : parents) {
        if (parent == found[i]) found.push_back(child);
      }
    }
    found.erase(found.begin());
    return found;
  }

  Fd socket_;
  Fd signals_;
  bool namespaces_;
  bool time_namespaces_ = false;
  std::vector<PendingSpawn> pending_;
  std::vector<pid_t> failed_;
  std::deque<Outgoing> outbox_;
  std::map<std::uint32_t, Fd> held_;
};

}  // namespace

void RunSlotInit(Fd socket, bool namespaces, std::vector<std::string> lost) {
  SlotInit(std::move(socket), namespaces).Run(std::move(lost));
}

}  // namespace xmpi::os
