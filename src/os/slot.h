// Slot: the proxy's handle on the place where the ranks of one slot and attempt live. Behind it is
// the slot's init (slot_init.h): PID 1 of a PID and mount namespace of its own, which spawns what
// the proxy asks for and reaps everything, also restored ranks and orphans.
//
// Everything here runs on one thread: wait until fd() is readable, then call Dispatch(), which runs
// the callbacks. When the Slot is destroyed, or the proxy dies in whatever way, everything inside
// the slot dies too: the init sees the end of its socket, kills all of them, and ends last.
//
// PIDs are those inside the slot unless the name says host_pid.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace xmpi::os {

enum class RequestKind : std::uint32_t;
struct SlotEvent;

// One descriptor of a process to be: `fd` of ours, or else `path`, opened inside the slot. A file
// must be given by path, since CRIU can only dump files that were opened in the slot's own mounts.
struct SpawnFd {
  int target = -1;
  int fd = -1;  // stays ours
  std::string path = {};
  int open_flags = 0;
};

struct SpawnRequest {
  std::vector<std::string> argv = {};  // argv[0] without a slash is looked up in PATH of `env`
  std::vector<std::string> env = {};   // the whole environment, NAME=value
  std::string cwd = {};                // empty: "/"
  std::vector<SpawnFd> fds = {};       // 0, 1 and 2 become /dev/null when they are not in it
  std::vector<int> cpus = {};          // empty: as the proxy
  bool own_time_namespace = false;     // clocks go on from the node's, and move with the rank
  bool session_leader = true;          // what CRIU wants of a rank
  pid_t after_pid = 0;  // not 0: its PID and those of what it forks lie above this one
};

struct Spawned {
  pid_t pid = 0;
  pid_t host_pid = 0;
  Fd pidfd = {};  // of the proxy; becomes readable when the process ends
};

struct SlotExit {
  pid_t pid = 0;   // may be one that nobody here spawned: an orphan, a CRIU helper
  int status = 0;  // as from wait(2)
};

class Slot {
 public:
  struct Options {
    bool namespaces = true;  // false: never try (for tests of the fallback)
    int kept = -1;  // a descriptor of ours that the init keeps open: what is in it has a path for
                    // the ranks, kept_path(), and leaves nothing behind
  };
  using SpawnDone = std::function<void(Result<Spawned>)>;

  static Result<std::unique_ptr<Slot>> Start(Options options);
  static Result<std::unique_ptr<Slot>> Start() { return Start(Options{}); }
  ~Slot();
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  // A failed start is an Error that names the program and says why ("No such file or directory"),
  // never an exit code 127. Many may be under way at once.
  void Spawn(const SpawnRequest& request, SpawnDone done);
  // A handle on a process that lives in the slot already, such as a restored rank.
  void Adopt(pid_t pid, SpawnDone done);

  // The init keeps the descriptor open until it is told to let go, or until everything inside the
  // slot has been killed: longer than the proxy, whatever happens to that. Gives a number for
  // LetGo.
  Result<std::uint32_t> Hold(int fd);
  void LetGo(std::uint32_t held);

  // Called from Dispatch for every process reaped in the slot.
  void set_on_exit(std::function<void(SlotExit)> on_exit) { on_exit_ = std::move(on_exit); }
  // Called once when the init itself is gone, and everything in the slot with it.
  void set_on_lost(std::function<void(Error)> on_lost) { on_lost_ = std::move(on_lost); }

  int fd() const { return socket_.get(); }
  void Dispatch();
  // Dispatches until `finished` holds; false when it does not in time. For tests and start-up.
  bool DispatchUntil(const std::function<bool()>& finished, std::chrono::milliseconds deadline);

  bool has_namespaces() const { return namespaces_; }
  // What does not work for lack of privilege, one sentence each; empty when all is there.
  const std::vector<std::string>& lost() const { return lost_; }
  pid_t init_host_pid() const { return init_pid_; }
  // Inside the slot; empty without Options::kept.
  const std::string& kept_path() const { return kept_path_; }
  // The slot's own /proc, a directory: "12/status" under it is PID 12 of the slot.
  int proc_fd() const { return proc_.get(); }

 private:
  struct Waiting {
    SpawnDone done;
    SpawnRequest names;  // what an error message needs of the request
  };

  Slot() = default;
  Result<> Hello();
  void Send(RequestKind kind, pid_t pid, const std::vector<int>& fds, Waiting waiting);
  Result<> Tell(std::uint32_t id, RequestKind kind, std::uint32_t subject,
                const std::vector<int>& fds);
  void Handle(const SlotEvent& event, Fd fd);
  void Lose(Error error);

  Fd socket_;
  Fd pidfd_;
  Fd proc_;
  pid_t init_pid_ = 0;
  bool namespaces_ = false;
  std::vector<std::string> lost_;
  std::string kept_path_;
  std::uint32_t next_id_ = 1;
  std::map<std::uint32_t, Waiting> waiting_;
  std::function<void(SlotExit)> on_exit_;
  std::function<void(Error)> on_lost_;
};

}  // namespace xmpi::os
