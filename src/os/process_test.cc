#include "os/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <optional>

#include "os/link_test_support.h"

namespace xmpi::os {
namespace {

using os::testing::RunUntil;

// Runs `script` with its stdout on a pipe as fd `out`; gives what it wrote and how it ended.
struct Shell {
  explicit Shell(const std::string& script, int out = 1,
                 std::vector<SpawnOptions::Inherited> more = {}) {
    Pipe pipe = MakePipe().value();
    SpawnOptions options{{"/bin/sh", "-c", script}, {{pipe.write.get(), out}}};
    options.fds.insert(options.fds.end(), more.begin(), more.end());
    process = Process::Spawn(loop, options, [this](int s) { status = s; }).value();
    pipe.write.Close();
    output = std::move(pipe.read);
  }
  std::string Finish() {
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = ::read(output.get(), buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<std::size_t>(n));
    }
    EXPECT_TRUE(RunUntil(loop, [&] { return status.has_value(); }));
    return text;
  }
  asio::io_context loop;
  std::unique_ptr<Process> process;
  Fd output;
  std::optional<int> status;
};

TEST(Process, ExitCodeAndOutput) {
  Shell run("echo hello; exit 7");
  EXPECT_EQ(run.Finish(), "hello\n");
  EXPECT_EQ(WEXITSTATUS(*run.status), 7);
  EXPECT_EQ(DescribeStatus(*run.status), "exit code 7");
  EXPECT_FALSE(run.process->running());
}

TEST(Process, InheritsTheListAndNothingElse) {
  const Pipe leak = MakePipe().value();
  const int open_on_exec = ::dup(leak.read.get());  // without close-on-exec, as a careless library
  Shell run("for f in /proc/$$/fd/*; do [ -e $f ] && echo $(basename $f) $(readlink $f); done >&5",
            5, {{leak.read.get(), 9}});
  const std::string text = run.Finish();
  ::close(open_on_exec);
  EXPECT_THAT(text,
              ::testing::ContainsRegex("^0 /dev/null\n1 .*\n2 /dev/null\n5 pipe:.*\n9 pipe:.*\n$"));
}

TEST(Process, TargetsMayCollideWithSources) {
  const Pipe a = MakePipe().value();
  const Pipe b = MakePipe().value();
  const int low = std::min(a.read.get(), b.read.get());
  const int high = std::max(a.read.get(), b.read.get());
  ASSERT_EQ(::write(a.write.get(), "a\n", 2), 2);
  ASSERT_EQ(::write(b.write.get(), "b\n", 2), 2);
  Shell run(std::format("head -n1 <&{}; head -n1 <&{}", low, high), 1,
            {{a.read.get(), high}, {b.read.get(), low}});
  EXPECT_EQ(run.Finish(), a.read.get() == low ? "b\na\n" : "a\nb\n");
}

TEST(Process, HasAGroupOfItsOwnAndDefaultSignals) {
  ::signal(SIGPIPE, SIG_IGN);
  Shell run("ps -o pgid= -p $$ | tr -d ' '; echo $$; grep SigIgn /proc/$$/status");
  ::signal(SIGPIPE, SIG_DFL);
  const std::string pid = std::to_string(run.process->pid());
  EXPECT_EQ(run.Finish(), pid + "\n" + pid + "\nSigIgn:\t0000000000000000\n");
}

TEST(Process, SignalsReachTheWholeGroup) {
  Shell run("sleep 1000 & echo ready; wait");
  char buffer[6];
  ASSERT_EQ(::read(run.output.get(), buffer, sizeof buffer), 6);
  run.process->Signal(SIGTERM);
  run.Finish();  // ends only when the sleep, too, has closed the pipe
  EXPECT_EQ(DescribeStatus(*run.status), "signal 15 (Terminated)");
}

TEST(Process, WhatItLeavesInItsGroupEndsWithIt) {
  Shell run("sleep 1000 & echo $!; exit 0");
  // With the child gone only the loop ends the sleep, which holds the pipe.
  ASSERT_TRUE(RunUntil(run.loop, [&] { return run.status.has_value(); }));
  EXPECT_FALSE(run.Finish().empty());
}

TEST(Process, DyingWithItsOwnerWithoutACallback) {
  Shell run("echo ready; exec sleep 1000");
  char buffer[6];
  ASSERT_EQ(::read(run.output.get(), buffer, sizeof buffer), 6);
  const pid_t pid = run.process->pid();
  run.process.reset();
  ASSERT_TRUE(RunUntil(run.loop, [&] { return ::kill(pid, 0) != 0; }));  // reaped by the loop
  EXPECT_FALSE(run.status);
}

TEST(Process, AMissingProgramIsAnErrorAtOnce) {
  asio::io_context loop;
  const auto process = Process::Spawn(loop, {{"/no/such/program"}, {}}, [](int) { FAIL(); });
  ASSERT_FALSE(process);
  EXPECT_EQ(process.error().message, "start /no/such/program: No such file or directory");
}

}  // namespace
}  // namespace xmpi::os
