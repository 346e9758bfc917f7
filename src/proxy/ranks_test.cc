// Ranks as real processes in a real slot, without a launcher; and dumps against a checkpointer that
// fails and waits as told.
#include "proxy/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <format>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "criu/fake_checkpointer.h"
#include "proxy/dump.h"
#include "proxy/restore.h"
#include "proxy/start.h"

namespace xmpi::proxy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RanksTest : public testing::Test {
 protected:
  RanksTest()
      : slot_(std::move(*os::Slot::Start())),
        output_(loop_, {.room = [] { return std::int64_t{1} << 20; },
                        .send =
                            [this](RankId rank, std::uint32_t stream, std::string_view data) {
                              said_[rank] +=
                                  std::string(stream == 1 ? "" : "err:") + std::string(data);
                              if (data.empty())
                                log_.push_back(std::format("end {} {}", rank, stream));
                            }}),
        input_(loop_, [](std::uint64_t) {}),
        ranks_(loop_, &output_, &input_, [this](core::AgentEvent event) { OnEvent(event); }) {
    slot_->set_on_exit([this](os::SlotExit exit) { ranks_.OnExit(exit); });
  }

  void OnEvent(const core::AgentEvent& event) {
    if (const auto* pmi = std::get_if<core::RankPmi>(&event)) {
      log_.push_back(std::format("pmi {} {}", pmi->rank, pmi->bytes));
    } else if (const auto* ended = std::get_if<core::RankEnded>(&event)) {
      log_.push_back(std::format("ended {} {}", ended->rank, ended->wait_status));
      ended_[ended->rank] = static_cast<int>(ended->wait_status);
    }
  }

  void AddRank(RankId rank, std::vector<std::string> argv) {
    wire::RankSpec& spec = *launch_.add_ranks();
    spec.set_rank(rank);
    for (std::string& word : argv) spec.add_argv(std::move(word));
    wire::EnvironmentVariable& path = *spec.add_environment();
    path.set_name("PATH");
    path.set_value("/usr/bin:/bin");
  }
  void AddShell(RankId rank, const std::string& script) { AddRank(rank, {"bash", "-c", script}); }

  void Start() {
    launch_.set_size(static_cast<std::uint32_t>(launch_.ranks_size()));
    StartRanks(launch_, {.node = "node7", .hostname = "host7", .environment = {}}, slot_.get(),
               &ranks_, [this](Result<std::vector<wire::RankPlace>> places) {
                 log_.push_back("started");
                 places_ = std::move(places);
               });
    RunUntil([this] { return places_.has_value(); });
  }
  void RunUntil(const std::function<bool()>& finished) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!finished() && std::chrono::steady_clock::now() < deadline) {
      slot_->DispatchUntil(finished, std::chrono::milliseconds(2));
      loop_.restart();
      loop_.poll();
    }
    ASSERT_TRUE(finished());
  }

  asio::io_context loop_;
  std::unique_ptr<os::Slot> slot_;
  std::map<RankId, std::string> said_;
  std::map<RankId, int> ended_;
  std::vector<std::string> log_;
  OutputRelay output_;
  InputFeed input_;
  Ranks ranks_;
  wire::Launch launch_;
  std::optional<Result<std::vector<wire::RankPlace>>> places_;
};

TEST_F(RanksTest, AnEndIsToldWhenAllThatWasWrittenBeforeIsDelivered) {
  AddShell(4,
           "echo hello from $PMI_RANK of $PMI_SIZE on $PMI_HOSTNAME; echo oops >&2;"
           "echo cmd=x >&40; exit 7");
  Start();
  ASSERT_TRUE(*places_) << places_->error().message;
  RunUntil([&] { return ended_.contains(4); });
  EXPECT_EQ(WEXITSTATUS(ended_[4]), 7);
  EXPECT_THAT(said_[4], HasSubstr("hello from 4 of 1 on host7\n"));
  EXPECT_THAT(said_[4], HasSubstr("err:oops\n"));
  EXPECT_EQ(log_.front(), "started");
  EXPECT_EQ(log_.back(), std::format("ended 4 {}", ended_[4]));
  EXPECT_THAT(log_, testing::Contains("pmi 4 cmd=x\n"));
}

TEST_F(RanksTest, ARankMayEndBeforeTheLastOneIsStarted) {
  for (RankId rank = 0; rank < 20; ++rank) AddRank(rank, {"true"});
  Start();
  ASSERT_TRUE(*places_) << places_->error().message;
  EXPECT_EQ((*places_)->size(), 20u);
  RunUntil([&] { return ended_.size() == 20; });
  EXPECT_EQ(log_.front(), "started");
}

TEST_F(RanksTest, AllOfTheSlotOrNone) {
  AddShell(0, "sleep 1000");
  AddRank(1, {"./no-such-program"});
  AddShell(2, "sleep 1000");
  Start();
  ASSERT_FALSE(*places_);
  EXPECT_THAT(places_->error().message, HasSubstr("rank 1"));
  EXPECT_THAT(places_->error().message, HasSubstr("node7"));
  EXPECT_THAT(places_->error().message, HasSubstr("./no-such-program"));
  EXPECT_THAT(places_->error().message, HasSubstr("No such file or directory"));
  EXPECT_TRUE(ranks_.empty());
  EXPECT_TRUE(ended_.empty());
}

TEST_F(RanksTest, ARankThatIgnoresSigtermIsKilledAfterTheGraceAndTakesItsChildrenAlong) {
  AddShell(0, "trap '' TERM; sleep 1000 & echo up; while :; do sleep 1000; done");
  AddShell(1, "echo up; sleep 1000");
  Start();
  RunUntil([&] { return said_[0] == "up\n" && said_[1] == "up\n"; });
  ranks_.End(false);
  RunUntil([&] { return ended_.size() == 2; });
  EXPECT_EQ(WTERMSIG(ended_[0]), SIGKILL);
  EXPECT_EQ(WTERMSIG(ended_[1]), SIGTERM);
}

TEST_F(RanksTest, AStoppedRankIsNotWaitedFor) {
  AddShell(0, "kill -STOP $$");
  Start();
  const std::string stat = std::format("/proc/{}/stat", ranks_.Living()[0].host_pid);
  RunUntil([&] {
    std::string line;
    std::ifstream file(stat);
    std::getline(file, line);
    return line.contains(") T ");
  });
  ranks_.End(false);
  RunUntil([&] { return ended_.contains(0); });
  EXPECT_EQ(WTERMSIG(ended_[0]), SIGKILL) << "SIGTERM would wait until somebody continues it";
}

TEST_F(RanksTest, ForgottenRanksEndWithoutAWord) {
  AddShell(0, "echo here; sleep 60");
  Start();
  RunUntil([&] { return said_[0].contains("here"); });
  const pid_t pid = static_cast<pid_t>((**places_)[0].namespace_pid());
  ranks_.Forget();
  EXPECT_TRUE(ranks_.empty());
  criu::FakeCheckpointer checkpointer;
  std::optional<Result<>> free;
  const auto waiting = FreePids(loop_, {pid}, slot_.get(), &checkpointer,
                                [&](Result<> result) { free = std::move(result); });
  RunUntil([&] { return free.has_value(); });
  EXPECT_TRUE(*free) << free->error().message;
  EXPECT_TRUE(ended_.empty());
  EXPECT_FALSE(log_.back().starts_with("end")) << "its streams go on elsewhere";
}

// Knows what time each rank was given.
class TimingCheckpointer : public criu::FakeCheckpointer {
 public:
  void Dump(criu::DumpRequest request, std::function<void(criu::DumpDone)> done) override {
    timeouts.push_back(request.timeout);
    FakeCheckpointer::Dump(std::move(request), std::move(done));
  }
  std::vector<std::chrono::milliseconds> timeouts;
};

class DumpTest : public testing::Test {
 protected:
  void Dump() {
    std::vector<wire::RankImage> facts(3);
    for (RankId rank = 0; rank < 3; ++rank) {
      facts[rank].set_rank(rank);
      facts[rank].set_thread(100 + rank);
    }
    DumpRanks(
        {{0, {.pid = 2}}, {1, {.pid = 3}}, {2, {.pid = 4}}}, facts, {}, std::chrono::seconds(7),
        &fake_,
        [this](image::RankImage image) {
          sent_.push_back(image.manifest.rank);
          notes_[image.manifest.rank] = image.manifest.note;
        },
        [this](Result<std::vector<wire::RankImage>> images) {
          ++done_;
          result_ = std::move(images);
        });
  }
  TimingCheckpointer fake_;
  std::vector<RankId> sent_;
  std::map<RankId, std::string> notes_;
  int done_ = 0;
  std::optional<Result<std::vector<wire::RankImage>>> result_;
};

TEST_F(DumpTest, EachImageGoesOutAsItIsMade) {
  fake_.dumps[1].hold = true;
  Dump();
  fake_.RunPending();
  EXPECT_THAT(sent_, ElementsAre(0, 2));
  EXPECT_EQ(done_, 0);
  fake_.Release(1);
  fake_.RunPending();
  EXPECT_THAT(sent_, ElementsAre(0, 2, 1));
  ASSERT_EQ(done_, 1);
  EXPECT_EQ((**result_).size(), 3u);
  EXPECT_THAT(fake_.timeouts, testing::Each(std::chrono::seconds(7)));
}

TEST_F(DumpTest, FactsTravelWithTheImages) {
  Dump();
  fake_.RunPending();
  for (RankId rank = 0; rank < 3; ++rank) {
    const Result<wire::RankImage> facts = FactsOf(rank, notes_[rank]);
    ASSERT_TRUE(facts) << facts.error().message;
    EXPECT_EQ(facts->thread(), 100 + rank);
    EXPECT_FALSE(FactsOf(rank + 1, notes_[rank])) << "another rank's";
  }
  EXPECT_FALSE(FactsOf(1, "\xff"));
}

TEST_F(DumpTest, AFailureIsToldOnlyWhenNoDumpIsUnderWay) {
  fake_.dumps[0].error = "CRIU says: no";
  fake_.dumps[1].hold = true;
  Dump();
  fake_.RunPending();
  EXPECT_EQ(done_, 0);
  fake_.Release(1);
  fake_.RunPending();
  ASSERT_EQ(done_, 1);
  ASSERT_FALSE(*result_);
  EXPECT_THAT((*result_).error().message, HasSubstr("CRIU says: no"));
  EXPECT_THAT(sent_, ElementsAre()) << "after a failure nothing more is worth sending";
}

TEST(Dump, WithoutRanksIsAFailure) {
  criu::FakeCheckpointer fake;
  bool failed = false;
  DumpRanks(
      {}, {}, {}, std::chrono::seconds(7), &fake, [](image::RankImage) {},
      [&](Result<std::vector<wire::RankImage>> images) { failed = !images; });
  EXPECT_TRUE(failed);
}

}  // namespace
}  // namespace xmpi::proxy
