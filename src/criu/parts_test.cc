// The parts of the CRIU checkpointer that need no CRIU: its log, process trees, pipes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>

#include "criu/criu_log.h"
#include "criu/process_tree.h"
#include "criu/ties.h"

namespace xmpi::criu {
namespace {

using std::chrono::seconds;

TEST(CriuLog, QuotesErrorsWithoutStampsAndPlaces) {
  const std::string log =
      "(00.000100) Version: 4.1.1\n"
      "(00.012345) Error (criu/sk-inet.c:191): inet: Connected TCP socket, consider using\n"
      "(00.012400) Warn  (criu/x.c:1): not this one\n"
      "(00.012500)     17: Error (criu/cr-dump.c:2111): Dumping FAILED.\n";
  EXPECT_EQ(ErrorLines(log), "inet: Connected TCP socket, consider using; Dumping FAILED.");
  EXPECT_EQ(ErrorLines(log, 1), "inet: Connected TCP socket, consider using");
  EXPECT_EQ(ErrorLines("nothing here\n"), "");
  EXPECT_EQ(ErrorLines("Error (a line without an end"), "Error (a line without an end");
}

TEST(CriuLog, TailBeginsAtALine) {
  EXPECT_EQ(LogTail("one\ntwo\nthree\n", 100), "one\ntwo\nthree\n");
  EXPECT_EQ(LogTail("one\ntwo\nthree\n", 8), "three\n");
}

// A child with a child, both of which wait for their end.
class ProcessTreeTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    root_ = fork();
    if (root_ == 0) {
      setsid();
      const pid_t child = fork();
      if (child > 0) [[maybe_unused]]
        ssize_t done = write(ends[1], &child, sizeof(child));
      for (;;) pause();
    }
    ASSERT_EQ(read(ends[0], &child_, sizeof(child_)), static_cast<ssize_t>(sizeof(child_)));
    close(ends[0]);
    close(ends[1]);
  }
  void TearDown() override {
    (void)SignalTree(proc_.get(), root_, SIGKILL, false);
    waitpid(root_, nullptr, 0);
  }
  char StateOfChild() {
    for (const Process& process : ReadTree(proc_.get(), root_)) {
      if (process.pid == child_) return process.state;
    }
    return '-';
  }

  Fd proc_{open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  pid_t root_ = 0, child_ = 0;
};

TEST_F(ProcessTreeTest, ListsDescendantsAndTheirNumbers) {
  const std::vector<Process> tree = ReadTree(proc_.get(), root_);
  ASSERT_EQ(tree.size(), 2u);
  EXPECT_EQ(tree[0].pid, root_);
  EXPECT_EQ(tree[1].pid, child_);
  EXPECT_EQ(tree[1].session, root_);
  EXPECT_THAT(UsedPids(tree), testing::UnorderedElementsAre(root_, child_));
  EXPECT_TRUE(ReadTree(proc_.get(), 1 << 29).empty());
}

TEST_F(ProcessTreeTest, ContinuesOnlyWhatIsStopped) {
  ASSERT_EQ(kill(child_, SIGSTOP), 0);
  EXPECT_EQ(StateOf(proc_.get(), root_), ProcessState::kRunning);
  ASSERT_EQ(kill(root_, SIGSTOP), 0);
  ASSERT_TRUE(WaitSettled(proc_.get(), root_, true, seconds(20)));
  EXPECT_EQ(StateOf(proc_.get(), root_), ProcessState::kStopped);
  EXPECT_EQ(StateOfChild(), 'T');
  ASSERT_TRUE(SignalTree(proc_.get(), root_, SIGCONT, true));
  EXPECT_TRUE(WaitSettled(proc_.get(), root_, false, seconds(20)));
  EXPECT_EQ(StateOf(proc_.get(), root_), ProcessState::kRunning);
  EXPECT_FALSE(WaitSettled(proc_.get(), root_, true, std::chrono::milliseconds(1)));
}

TEST_F(ProcessTreeTest, AZombieIsGone) {
  ASSERT_TRUE(SignalTree(proc_.get(), root_, SIGKILL, false));
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(root_), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(StateOf(proc_.get(), root_), ProcessState::kGone);
}

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    read_end = Fd(ends[0]);
    write_end = Fd(ends[1]);
  }
  std::string Drain() {
    std::string all(4u << 20, '\0');
    const ssize_t size = read(read_end.get(), all.data(), all.size());
    return all.substr(0, size > 0 ? static_cast<std::size_t>(size) : 0);
  }
  Fd read_end, write_end;
};

TEST(Ties, PeekTakesNothing) {
  Pipe pipe;
  EXPECT_EQ(PeekPipe(pipe.read_end.get()).value(), "");
  // Many small writes: each takes a buffer of the pipe, and one lies across two.
  std::string sent;
  for (int i = 0; i < 500; ++i) {
    const std::string part = "part " + std::to_string(i) + ",";
    ASSERT_EQ(write(pipe.write_end.get(), part.data(), part.size()), std::ssize(part));
    sent += part;
  }
  EXPECT_EQ(PeekPipe(pipe.read_end.get()).value(), sent);
  EXPECT_EQ(PeekPipe(pipe.read_end.get()).value(), sent);
  EXPECT_EQ(pipe.Drain(), sent);
}

TEST(Ties, AFullPipeOfTheLargestSizeTravels) {
  Pipe from, to;
  ASSERT_EQ(fcntl(from.write_end.get(), F_SETPIPE_SZ, 1 << 20), 1 << 20);
  std::string sent(1 << 20, 'x');
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 7 + i / 4096);
  ASSERT_EQ(write(from.write_end.get(), sent.data(), sent.size()), std::ssize(sent));
  const std::string unread = PeekPipe(from.read_end.get()).value();
  EXPECT_EQ(unread, sent);
  ASSERT_TRUE(FillPipe(to.read_end.get(), unread));
  EXPECT_EQ(to.Drain(), sent);
}

TEST(Ties, FindsThoseThatAreStillOpen) {
  Pipe pipe, closed;
  struct stat info{};
  ASSERT_EQ(fstat(pipe.read_end.get(), &info), 0);
  const std::uint64_t inode = info.st_ino;
  ASSERT_EQ(fstat(closed.read_end.get(), &info), 0);
  closed.read_end.Close();
  closed.write_end.Close();
  const Fd proc(open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  std::vector<Process> self(1);
  self[0].pid = getpid();
  const std::vector<OpenFd> fds = ReadFds(proc.get(), self);
  const std::vector<Tie> ties = {{image::TieKind::kStdin, inode},
                                 {image::TieKind::kStdout, info.st_ino},
                                 {image::TieKind::kStderr, inode}};
  ASSERT_EQ(write(pipe.write_end.get(), "left", 4), 4);
  std::vector<image::ManifestTie> found = FindTies(fds, ties);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].is_pipe);
  ASSERT_TRUE(CaptureUnread(proc.get(), fds, &found));
  EXPECT_EQ(found[0].unread, "left");
}

}  // namespace
}  // namespace xmpi::criu
