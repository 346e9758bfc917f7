// Process: a child with an explicit list of descriptors and a process group of its own, watched
// through a pidfd on the loop. Everything else of ours stays closed in it, its signals are at
// their defaults. The group is the unit: signals go to all of it, and what is left of it when the
// child ends is killed before the child is reaped, so nothing of a child outlives it.
#pragma once

#include <sys/types.h>

#include <asio.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace xmpi::os {

struct SpawnOptions {
  std::vector<std::string> argv;  // argv[0] is looked up in PATH
  struct Inherited {
    int source;  // stays the caller's
    int target;  // its number in the child
  };
  std::vector<Inherited> fds;  // of 0, 1 and 2, what is not named is /dev/null
};

class Process {
 public:
  // `status` as of wait(2). Called once, from the loop, never after the Process is destroyed.
  using OnExit = std::function<void(int status)>;

  static Result<std::unique_ptr<Process>> Spawn(asio::io_context& loop, const SpawnOptions& options,
                                                OnExit on_exit);
  // Kills what still runs; the loop reaps it.
  ~Process();

  pid_t pid() const;
  bool running() const;
  // To the whole group; nothing once the child has ended.
  void Signal(int signal);

 private:
  struct State;
  static asio::awaitable<void> Watch(std::shared_ptr<State> state);
  explicit Process(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

struct Pipe {
  Fd read;
  Fd write;
};
Result<Pipe> MakePipe();  // close-on-exec

// "exit code 3", "signal 9 (Killed)".
std::string DescribeStatus(int status);

}  // namespace xmpi::os
