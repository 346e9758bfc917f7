// RemoteShell: a command started on a node through ssh, through any other command that takes
// `HOST COMMAND...` (-launcher exec CMD), or directly when the node is this host. What the command
// must know goes to its standard input, never into argv. Its stderr is passed on line by line, and
// when it ends badly the Error says why in the user's terms and what to do about it.
//
// Runs on the loop; owns the process and kills it when destroyed. Never asks anybody anything:
// ssh runs in batch mode, without a terminal.
#pragma once

#include <asio.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/limits.h"

namespace xmpi::os {

class RemoteShell {
 public:
  struct Options {
    std::string node;                  // as the user named it
    std::vector<std::string> command;  // what runs there
    std::vector<std::string> shell;    // of -launcher exec; empty: XMPI_SSH, else ssh
    std::string input;                 // to its standard input; wiped once sent
    int output = -1;                   // takes its standard output; stays the caller's. -1: nobody
    // Without Started() within this time it is killed, and the Error says so.
    std::chrono::milliseconds start_deadline = LinkTimeouts{}.start;
  };
  struct Events {
    std::function<void(std::string line)> on_stderr;
    // Once, the last callback: it ended with exit code 0, or why not.
    std::function<void(Result<> how)> on_ended;
  };

  // An Error when not even the shell could be started; then no callback follows.
  static Result<std::unique_ptr<RemoteShell>> Start(asio::io_context& loop, Options options,
                                                    Events events);
  // Kills it if it still runs; no callback follows.
  ~RemoteShell();

  // The command is known to be at work (its proxy has connected): the deadline is off.
  void Started();
  // Kills it; on_ended follows.
  void Kill();

 private:
  class Impl;
  explicit RemoteShell(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// The whole argv for `options`. Fails for a node name that no shell should see.
Result<std::vector<std::string>> RemoteCommandLine(const RemoteShell::Options& options);

// `word` for a POSIX shell: itself when it is harmless, else in quotes.
std::string QuoteForShell(std::string_view word);

// Why a shell that ended with `status` (of wait(2)) and said `last_words` on stderr failed.
Error ExplainShellFailure(const RemoteShell::Options& options, int status,
                          std::string_view last_words);

}  // namespace xmpi::os
