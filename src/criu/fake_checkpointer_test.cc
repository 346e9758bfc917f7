#include "criu/fake_checkpointer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace xmpi::criu {
namespace {

TEST(FakeCheckpointer, DoesAsItIsTold) {
  FakeCheckpointer fake;
  fake.dumps[1].error = "no luck";
  fake.dumps[1].original = ProcessState::kRunning;
  fake.dumps[2].hold = true;
  std::vector<std::string> answers;
  for (RankId rank : {0u, 1u, 2u}) {
    fake.Dump({.rank = rank, .pid = static_cast<pid_t>(10 + rank), .ties = {}}, [&](DumpDone done) {
      answers.push_back(done.image ? "ok" : done.image.error().message);
    });
  }
  EXPECT_TRUE(answers.empty());
  fake.RunPending();
  EXPECT_THAT(answers, testing::ElementsAre("ok", "no luck"));
  EXPECT_EQ(fake.State(10), ProcessState::kStopped);
  EXPECT_EQ(fake.State(11), ProcessState::kRunning);
  fake.Cancel();
  fake.RunPending();
  EXPECT_EQ(answers.back(), "cancelled");
  ASSERT_TRUE(fake.Continue(10));
  EXPECT_EQ(fake.State(10), ProcessState::kRunning);
  EXPECT_THAT(fake.calls,
              testing::ElementsAre("dump 0", "dump 1", "dump 2", "cancel", "continue 10"));
}

TEST(FakeCheckpointer, GivesTheImageBack) {
  FakeCheckpointer fake;
  fake.restores[5].error = "taken";
  image::RankImage image;
  image.manifest.rank = 5;
  image.manifest.pid = 3;
  int failures = 0;
  fake.Restore({.image = std::move(image), .ties = {}, .reserved_pids = {}}, [&](RestoreDone done) {
    EXPECT_EQ(done.image.manifest.rank, 5u);
    failures += done.pid ? 0 : 1;
  });
  fake.RunPending();
  EXPECT_EQ(failures, 1);
}

}  // namespace
}  // namespace xmpi::criu
