#include "launcher/input_feed.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <string>

#include "base/fd.h"

namespace xmpi::launcher {
namespace {

using namespace std::chrono_literals;

class InputFeedTest : public testing::Test {
 protected:
  InputFeedTest() {
    std::signal(SIGPIPE, SIG_IGN);
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    read_ = Fd(ends[0]);
    write_ = Fd(ends[1]);
    fcntl(write_.get(), F_SETFL, O_NONBLOCK);
    fcntl(write_.get(), F_SETPIPE_SZ, 1 << 20);
  }

  void Start(int fd) {
    feed_.emplace(loop_, fd, [this](std::string data, bool end) {
      EXPECT_FALSE(ended_);
      sent_ += data;
      ended_ = end;
    });
    feed_->Start();
  }

  bool RunUntil(auto done) {
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      loop_.restart();
      loop_.run_for(1ms);
    }
    return true;
  }

  asio::io_context loop_;
  asio::executor_work_guard<asio::io_context::executor_type> busy_{loop_.get_executor()};
  Fd read_, write_;
  std::optional<InputFeed> feed_;
  std::string sent_;
  bool ended_ = false;
};

TEST_F(InputFeedTest, AllOfItThenTheEnd) {
  Start(read_.get());
  ASSERT_EQ(write(write_.get(), "hello", 5), 5);
  ASSERT_TRUE(RunUntil([&] { return sent_ == "hello"; }));
  EXPECT_FALSE(ended_);
  write_.Close();
  ASSERT_TRUE(RunUntil([&] { return ended_; }));
  EXPECT_EQ(sent_, "hello");
}

TEST_F(InputFeedTest, NoMoreThanTheWindowIsOnItsWay) {
  const std::string much(300000, 'x');
  ASSERT_EQ(write(write_.get(), much.data(), much.size()), 300000);
  write_.Close();
  Start(read_.get());
  ASSERT_TRUE(RunUntil([&] { return sent_.size() == InputFeed::kWindowBytes; }));
  loop_.restart();
  loop_.run_for(20ms);
  EXPECT_EQ(sent_.size(), InputFeed::kWindowBytes);
  feed_->OnTaken(1000);
  ASSERT_TRUE(RunUntil([&] { return sent_.size() == InputFeed::kWindowBytes + 1000; }));
  while (!ended_) {
    feed_->OnTaken(InputFeed::kWindowBytes);
    const std::size_t before = sent_.size();
    ASSERT_TRUE(RunUntil([&] { return ended_ || sent_.size() > before; }));
  }
  EXPECT_EQ(sent_, much);
}

TEST_F(InputFeedTest, WhatComesWhileHeldFollowsLater) {
  Start(read_.get());
  feed_->Hold(true);
  ASSERT_EQ(write(write_.get(), "late", 4), 4);
  write_.Close();
  loop_.restart();
  loop_.run_for(50ms);
  EXPECT_EQ(sent_, "");
  feed_->Hold(false);
  ASSERT_TRUE(RunUntil([&] { return ended_; }));
  EXPECT_EQ(sent_, "late");
}

TEST_F(InputFeedTest, AFileIsReadLikeAPipe) {
  char name[] = "/tmp/input_feed_test.XXXXXX";
  const Fd file(mkstemp(name));
  unlink(name);
  ASSERT_EQ(write(file.get(), "from a file", 11), 11);
  lseek(file.get(), 0, SEEK_SET);
  Start(file.get());
  ASSERT_TRUE(RunUntil([&] { return ended_; }));
  EXPECT_EQ(sent_, "from a file");
}

TEST_F(InputFeedTest, AClosedInputEndsAtOnce) {
  Start(4000);  // a number that nothing has
  ASSERT_TRUE(RunUntil([&] { return ended_; }));
  EXPECT_EQ(sent_, "");
}

// A terminal whose foreground is another process group: nothing is read, nobody is stopped, and
// typed words are still there when we come to the front.
TEST_F(InputFeedTest, InTheBackgroundOfATerminalItWaits) {
  int outside = -1;
  const pid_t child = forkpty(&outside, nullptr, nullptr, nullptr);
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGTTOU, SIG_IGN);
    std::signal(SIGTTIN, SIG_IGN);
    const pid_t front = fork();
    if (front == 0) {
      setpgid(0, 0);
      for (;;) pause();
    }
    setpgid(front, front);
    tcsetpgrp(STDIN_FILENO, front);
    Start(STDIN_FILENO);
    (void)!write(STDOUT_FILENO, "R", 1);  // ready: the words may be typed
    loop_.run_for(500ms);
    const bool waited = sent_.empty();
    kill(front, SIGKILL);
    tcsetpgrp(STDIN_FILENO, getpgrp());
    const bool came = RunUntil([&] { return sent_ == "typed\n"; });
    _exit(waited && came ? 0 : 1);
  }
  char ready = 0;
  ASSERT_EQ(read(outside, &ready, 1), 1);
  ASSERT_EQ(write(outside, "typed\n", 6), 6);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(outside);
}

}  // namespace
}  // namespace xmpi::launcher
