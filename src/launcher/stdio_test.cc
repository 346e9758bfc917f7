#include "launcher/stdio.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <string>

#include "base/fd.h"

namespace xmpi::launcher {
namespace {

using namespace std::chrono_literals;

constexpr ProxyId kFirst{.slot = 0};
constexpr ProxyId kSecond{.slot = 1};

// Stdio between two pipes of ours and a record of what it says.
class StdioTest : public testing::Test {
 protected:
  StdioTest() {
    std::signal(SIGPIPE, SIG_IGN);
    MakePipe(&out_, &out_write_);
    MakePipe(&err_, &err_write_);
  }
  // The writer must be idle before its pipe's number goes to the next test.
  ~StdioTest() override {
    bool finished = !stdio_;
    if (stdio_) stdio_->Finish([&] { finished = true; });
    EXPECT_TRUE(RunUntil([&] { return finished; }));
  }

  static void MakePipe(Fd* read_end, Fd* write_end) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    *read_end = Fd(ends[0]);
    *write_end = Fd(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }

  void Open(bool label = false, bool shared = false) {
    stdio_.emplace(loop_, out_write_.get(), shared ? out_write_.get() : err_write_.get(), label,
                   StdioEvents{.acknowledge = [this](ProxyId id, std::size_t n) { acks_[id] += n; },
                               .drained = [this](ProxyId id) { ++drained_[id]; },
                               .broken = [this](int error) { broken_ = error; }});
  }

  void Send(ProxyId from, RankId rank, std::string data, std::uint32_t stream = 1) {
    wire::Output output;
    output.set_rank(rank);
    output.set_stream(stream);
    output.set_data(std::move(data));
    stdio_->OnOutput(from, std::move(output));
  }

  // Runs the loop until `done`, reading `pipe` into text() if `reading`.
  bool RunUntil(auto done, bool reading = true) {
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      loop_.restart();
      loop_.run_for(1ms);
      if (reading) Read();
    }
    return true;
  }

  void Read() {
    if (!out_) return;
    char buffer[65536];
    for (ssize_t n; (n = read(out_.get(), buffer, sizeof buffer)) > 0;)
      out_text_.append(buffer, static_cast<std::size_t>(n));
    for (ssize_t n; (n = read(err_.get(), buffer, sizeof buffer)) > 0;)
      err_text_.append(buffer, static_cast<std::size_t>(n));
  }

  asio::io_context loop_;
  asio::executor_work_guard<asio::io_context::executor_type> busy_{loop_.get_executor()};
  Fd out_, out_write_, err_, err_write_;
  std::optional<Stdio> stdio_;
  std::map<ProxyId, std::size_t> acks_, drained_;
  std::optional<int> broken_;
  std::string out_text_, err_text_;
};

TEST_F(StdioTest, BothStreamsArriveWhereTheyBelong) {
  Open();
  Send(kFirst, 0, "out\n");
  Send(kFirst, 1, "err\n", 2);
  ASSERT_TRUE(RunUntil([&] { return acks_[kFirst] == 2; }));
  Read();
  EXPECT_EQ(out_text_, "out\n");
  EXPECT_EQ(err_text_, "err\n");
}

TEST_F(StdioTest, WhatIsNotWrittenIsNotAcknowledged) {
  Open();
  const std::string line = std::string(65535, 'x') + "\n";
  // The pipe holds one of them; the writer is stuck in the second.
  Send(kFirst, 0, line);
  ASSERT_TRUE(RunUntil([&] { return acks_[kFirst] == 1; }, false));
  for (int i = 1; i < 8; ++i) Send(kFirst, 0, line);
  loop_.restart();
  loop_.run_for(50ms);
  EXPECT_EQ(acks_[kFirst], 1u);
  ASSERT_TRUE(RunUntil([&] { return acks_[kFirst] == 8; }));
  Read();
  EXPECT_EQ(out_text_.size(), 8 * line.size());
}

TEST_F(StdioTest, ADrainingProxyIsAcknowledgedWhateverTheReaderDoes) {
  Open();
  const std::string line = std::string(65535, 'x') + "\n";
  Send(kFirst, 0, line);
  ASSERT_TRUE(RunUntil([&] { return acks_[kFirst] == 1; }, false));
  for (int i = 1; i < 4; ++i) Send(kFirst, 0, line);
  stdio_->SetDraining(kFirst, true);
  EXPECT_EQ(acks_[kFirst], 4u);
  Send(kFirst, 0, line);
  EXPECT_EQ(acks_[kFirst], 5u);
  stdio_->SetDraining(kFirst, false);
  Send(kFirst, 0, line);
  EXPECT_EQ(acks_[kFirst], 5u);
  ASSERT_TRUE(RunUntil([&] { return acks_[kFirst] == 6; }));
  bool finished = false;
  stdio_->Finish([&] { finished = true; });
  ASSERT_TRUE(RunUntil([&] { return finished; }));
  Read();
  EXPECT_EQ(acks_[kFirst], 6u) << "nothing is acknowledged twice";
  EXPECT_EQ(out_text_.size(), 6 * line.size());
}

TEST_F(StdioTest, InAHurryNobodyWaitsForTheReaderAndMemoryIsBounded) {
  Open();
  const std::string line = std::string(65535, 'x') + "\n";
  Send(kFirst, 0, line);
  ASSERT_TRUE(RunUntil([&] { return acks_[kFirst] == 1; }, false));
  Send(kFirst, 0, line);
  Send(kFirst, 0, line);
  stdio_->Hurry();
  EXPECT_EQ(acks_[kFirst], 3u);
  constexpr std::size_t kMany = 2 * Stdio::kKeptBytes / 65536;
  for (std::size_t i = 0; i < kMany; ++i) Send(kSecond, 1, line);
  EXPECT_EQ(acks_[kSecond], kMany);
  bool finished = false;
  stdio_->Finish([&] { finished = true; });
  ASSERT_TRUE(RunUntil([&] { return finished; }));
  Read();
  EXPECT_GE(out_text_.size(), Stdio::kKeptBytes);
  EXPECT_LE(out_text_.size(), Stdio::kKeptBytes + 5 * line.size());
}

TEST_F(StdioTest, DrainedComesOnceAllBytesAreHere) {
  Open();
  Send(kFirst, 0, "12345\n");
  stdio_->OnDrained(kFirst, 10);
  EXPECT_EQ(drained_[kFirst], 0u);
  Send(kSecond, 4, "not his\n");
  EXPECT_EQ(drained_[kFirst], 0u);
  Send(kFirst, 1, "6789");
  EXPECT_EQ(drained_[kFirst], 1u);
  stdio_->OnDrained(kSecond, 8);
  EXPECT_EQ(drained_[kSecond], 1u);
}

TEST_F(StdioTest, APromptIsShownWithoutItsNewline) {
  Open();
  Send(kFirst, 0, "name? ");
  EXPECT_EQ(acks_[kFirst], 1u);
  ASSERT_TRUE(RunUntil([&] { return out_text_ == "name? "; }));
}

TEST_F(StdioTest, TheRestOfALineGoesOutAtTheEndOfItsStream) {
  Open();
  Send(kFirst, 0, "rest");
  Send(kFirst, 0, "");
  ASSERT_TRUE(RunUntil([&] { return out_text_ == "rest" && acks_[kFirst] == 2; }));
}

TEST_F(StdioTest, FinishWritesEverything) {
  Open(true);
  Send(kFirst, 0, "a\nb");
  Send(kFirst, 1, "c", 2);
  stdio_->Say("ours");
  bool finished = false;
  stdio_->Finish([&] { finished = true; });
  ASSERT_TRUE(RunUntil([&] { return finished; }));
  Read();
  EXPECT_EQ(out_text_, "[0] a\n[0] b");
  EXPECT_EQ(err_text_, "ours\n[1] c");
}

TEST_F(StdioTest, OneFileForBothKeepsLinesWhole) {
  Open(false, true);
  const std::string out(30000, 'o'), err(30000, 'e');
  for (int i = 0; i < 50; ++i) {
    Send(kFirst, 0, out + "\n");
    Send(kFirst, 0, err + "\n", 2);
  }
  ASSERT_TRUE(RunUntil([&] { return acks_[kFirst] == 100; }));
  Read();
  std::size_t lines = 0;
  for (std::size_t begin = 0, end; (end = out_text_.find('\n', begin)) != std::string::npos;
       begin = end + 1, ++lines) {
    const std::string line = out_text_.substr(begin, end - begin);
    ASSERT_TRUE(line == out || line == err);
  }
  EXPECT_EQ(lines, 100u);
}

TEST_F(StdioTest, AReaderWhoIsGoneIsToldOnceAndTheRestIsDropped) {
  Open();
  out_.Close();
  Send(kFirst, 0, "x\n");
  ASSERT_TRUE(RunUntil([&] { return broken_.has_value(); }, false));
  EXPECT_EQ(*broken_, EPIPE);
  broken_.reset();
  Send(kFirst, 0, "y\n");
  ASSERT_TRUE(RunUntil([&] { return acks_[kFirst] == 2; }, false));
  EXPECT_FALSE(broken_);
}

}  // namespace
}  // namespace xmpi::launcher
