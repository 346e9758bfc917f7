// A rank's processes as its slot's /proc shows them: the root, its children and theirs. Reads and
// signals; keeps nothing. PIDs are those of the /proc given.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "criu/checkpointer.h"

namespace xmpi::criu {

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  char state = '?';  // as in /proc/PID/stat: R, S, D, T (stopped), t (traced), Z, X
  std::string name = {};
  std::vector<pid_t> threads = {};
};

// Every process below and including `root`, parents first; empty when the root is gone.
std::vector<Process> ReadTree(int proc_fd, pid_t root);

// Waits until whoever stopped or traced the tree is done with it, so that StateOf tells what stays:
// every process stopped when `stopped` is set, else none traced and no stop signal under way. False
// when that has not come about by the deadline. There is no event to wait for; it looks every
// half millisecond, and usually once.
bool WaitSettled(int proc_fd, pid_t root, bool stopped, std::chrono::milliseconds deadline);

ProcessState StateOf(int proc_fd, pid_t root);

// To every process of the tree, children first; with `only_stopped` to no running one.
Result<> SignalTree(int proc_fd, pid_t root, int signal, bool only_stopped);

// PIDs, TIDs, process groups and sessions of the tree, sorted, each once.
std::vector<pid_t> UsedPids(const std::vector<Process>& tree);

// Processes of the slot that belong to no rank's tree: started by a rank, they have left it (a
// daemon), and would be left behind by a move. The slot's init and our own criu are not among them.
std::vector<Process> Strays(int proc_fd, const std::vector<pid_t>& roots);

// A descriptor of a process: what it is, from the link in /proc/PID/fd.
struct OpenFd {
  pid_t pid = 0;
  int fd = -1;
  std::string target = {};  // "pipe:[123]", "socket:[456]", "/a/path"
};
// What a link below `proc_fd` points to; "" when it cannot be read.
std::string ReadLinkAt(int proc_fd, const std::string& link);
std::vector<OpenFd> ReadFds(int proc_fd, const std::vector<Process>& tree);

}  // namespace xmpi::criu
