#include "proxy/stdio.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <string>

#include "base/limits.h"

namespace xmpi::proxy {
namespace {

using std::chrono::seconds;

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    read_end = Fd(ends[0]);
    write_end = Fd(ends[1]);
  }
  void MakeNonBlocking(const Fd& fd) { fcntl(fd.get(), F_SETFL, O_NONBLOCK); }
  Fd read_end, write_end;
};

void Put(const Fd& fd, std::string_view text) {
  ASSERT_EQ(write(fd.get(), text.data(), text.size()), std::ssize(text));
}

std::string Take(const Fd& fd, std::size_t size) {
  std::string text(size, '\0');
  const ssize_t got = read(fd.get(), text.data(), size);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

class OutputRelayTest : public testing::Test {
 protected:
  OutputRelayTest()
      : relay_(loop_, {.room = [this] { return room_; },
                       .send =
                           [this](RankId rank, std::uint32_t stream, std::string_view data) {
                             room_ -= std::ssize(data);
                             if (data.empty()) ++ends_[{rank, stream}];
                             got_[{rank, stream}] += data;
                           }}) {}

  Fd Add(RankId rank, std::uint32_t stream) {
    Pipe pipe;
    pipe.MakeNonBlocking(pipe.read_end);
    relay_.Add(rank, stream, std::move(pipe.read_end));
    return std::move(pipe.write_end);
  }
  void RunUntil(const std::function<bool()>& finished) {
    const auto deadline = std::chrono::steady_clock::now() + seconds(20);
    while (!finished() && std::chrono::steady_clock::now() < deadline)
      loop_.run_one_for(std::chrono::milliseconds(50));
    ASSERT_TRUE(finished());
  }
  std::string Got(RankId rank, std::uint32_t stream) { return got_[{rank, stream}]; }

  asio::io_context loop_;
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(loop_);
  std::int64_t room_ = 1 << 20;
  std::map<std::pair<RankId, std::uint32_t>, std::string> got_;
  std::map<std::pair<RankId, std::uint32_t>, int> ends_;
  OutputRelay relay_;
};

TEST_F(OutputRelayTest, PassesOnWhatIsWrittenAndTellsTheEndOnce) {
  Fd out = Add(3, 1), err = Add(3, 2);
  Put(out, "hello ");
  Put(err, "oops");
  RunUntil([&] { return Got(3, 1) == "hello " && Got(3, 2) == "oops"; });
  Put(out, "world");
  out.Close();
  RunUntil([&] { return ends_[{3, 1}] == 1; });
  EXPECT_EQ(Got(3, 1), "hello world");
  EXPECT_EQ((ends_[{3, 2}]), 0);
  EXPECT_FALSE(relay_.empty());
  EXPECT_EQ(relay_.bytes_sent(), 15u);
}

TEST_F(OutputRelayTest, AFullWindowStopsTheReadingUntilThereIsRoom) {
  room_ = 0;
  Fd out = Add(0, 1);
  Put(out, "late");
  bool drained = false;
  relay_.Drain(0, [&] { drained = true; });
  loop_.run_for(std::chrono::milliseconds(20));
  EXPECT_EQ(Got(0, 1), "");
  EXPECT_FALSE(drained);
  room_ = 100;
  relay_.OnRoom();
  EXPECT_EQ(Got(0, 1), "late");
  EXPECT_TRUE(drained);
}

TEST_F(OutputRelayTest, DrainWaitsForItsOwnRankOnly) {
  Fd first = Add(0, 1), second = Add(1, 1);
  Put(first, std::string(40000, 'a'));
  room_ = 10;  // enough to begin one read, not two
  bool drained = false;
  relay_.Drain(1, [&] { drained = true; });
  EXPECT_TRUE(drained);
  relay_.Drain(7, [&] { drained = false; });
  EXPECT_FALSE(drained) << "a rank without streams has nothing to wait for";
}

TEST_F(OutputRelayTest, AStreamThatGoesOnElsewhereHasNoEndHere) {
  Fd out = Add(2, 1);
  Put(out, "before the dump");
  relay_.TellEnds(false);
  bool drained = false;
  relay_.DrainAll([&] { drained = true; });
  EXPECT_TRUE(drained);
  EXPECT_EQ(Got(2, 1), "before the dump");
  out.Close();
  RunUntil([&] { return relay_.empty(); });
  EXPECT_EQ((ends_[{2, 1}]), 0);
}

TEST_F(OutputRelayTest, CloseTellsTheEndOfWhatAGrandchildHoldsOpen) {
  Fd out = Add(2, 1);
  relay_.Close();
  EXPECT_EQ((ends_[{2, 1}]), 1);
  EXPECT_TRUE(relay_.empty());
}

class InputFeedTest : public testing::Test {
 protected:
  InputFeedTest() : feed_(loop_, [this](std::uint64_t bytes) { taken_ += bytes; }) {
    std::signal(SIGPIPE, SIG_IGN);
    pipe_.MakeNonBlocking(pipe_.write_end);
  }
  asio::io_context loop_;
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(loop_);
  std::uint64_t taken_ = 0;
  Pipe pipe_;
  InputFeed feed_;
};

TEST_F(InputFeedTest, WhatComesBeforeThePipeWaitsForIt) {
  feed_.Feed("early ", false);
  EXPECT_EQ(taken_, 0u);
  feed_.Open(std::move(pipe_.write_end));
  feed_.Feed("late", true);
  EXPECT_EQ(Take(pipe_.read_end, 100), "early late");
  EXPECT_EQ(Take(pipe_.read_end, 100), "") << "the end of input must reach the rank";
  EXPECT_EQ(taken_, 10u);
}

TEST_F(InputFeedTest, HoldsWhatThePipeHasNoRoomForAndSaysSo) {
  const std::string text(200'000, 'x');
  feed_.Open(std::move(pipe_.write_end));
  feed_.Feed(text, true);
  EXPECT_EQ(taken_ + feed_.held().size(), text.size());
  EXPECT_GT(feed_.held().size(), 0u);
  feed_.Pause();
  std::size_t read = 0;
  while (read < taken_) read += Take(pipe_.read_end, text.size()).size();
  loop_.run_for(std::chrono::milliseconds(20));
  EXPECT_EQ(read, taken_) << "nothing may be written while the rank is dumped";
  feed_.Resume();
  fcntl(pipe_.read_end.get(), F_SETFL, O_NONBLOCK);
  const auto deadline = std::chrono::steady_clock::now() + seconds(20);
  while (read < text.size() && std::chrono::steady_clock::now() < deadline) {
    loop_.run_for(std::chrono::milliseconds(1));
    read += Take(pipe_.read_end, text.size()).size();
  }
  EXPECT_EQ(read, text.size());
  EXPECT_EQ(taken_, text.size());
}

TEST_F(InputFeedTest, ARankThatClosedItsInputTakesEverything) {
  feed_.Open(std::move(pipe_.write_end));
  pipe_.read_end.Close();
  feed_.Feed("nobody reads this", false);
  EXPECT_EQ(taken_, 17u);
  EXPECT_EQ(feed_.held(), "");
}

}  // namespace
}  // namespace xmpi::proxy
