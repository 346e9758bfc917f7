// Ranks moved by the real CRIU between two slots of this machine, as between two proxies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "criu/move_fixture.h"

namespace xmpi::criu {
namespace {

using testing::HasSubstr;

TEST_F(MoveTest, CheckPasses) {
  auto place = MakePlace();
  Result<Preflight> result = Fail("no answer");
  bool done = false;
  place->checkpointer->Check([&](Result<Preflight> preflight) {
    result = std::move(preflight);
    done = true;
  });
  Until([&] { return done; });
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_THAT(result->version, testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST_F(MoveTest, ARankMovesWhileItsOriginalIsStillThere) {
  auto source = MakePlace();
  Rank rank = Start(*source);
  const std::string before = rank.wires.Ask("state");
  ExpectSound(before);

  DumpDone dump = Dump(*source, rank);
  ASSERT_TRUE(dump.image) << dump.image.error().message << "\n" << dump.log;
  EXPECT_EQ(dump.original, ProcessState::kStopped);

  auto target = MakePlace();
  Wires wires = Wires::Make();
  RestoreDone restore = Restore(*target, Transfer(std::move(*dump.image)), wires);
  wires.CloseRankEnds();
  ASSERT_TRUE(restore.pid) << restore.pid.error().message << "\n" << restore.log;
  EXPECT_EQ(*restore.pid, rank.pid);
  EXPECT_EQ(source->checkpointer->State(rank.pid), ProcessState::kStopped);

  const std::string after = wires.Ask("state");
  ExpectSound(after);
  EXPECT_EQ(Field(after, "pid"), Field(before, "pid"));
  EXPECT_EQ(Field(after, "helper"), Field(before, "helper"));
  EXPECT_GE(std::stod(Field(after, "now")), std::stod(Field(before, "now")));

  ASSERT_TRUE(source->checkpointer->Kill(rank.pid));
  Until([&] { return source->exits.contains(rank.pid); });
  EXPECT_EQ(wires.Ask("say still here"), "said");
  EXPECT_EQ(wires.ReadOutput(11), "still here\n");
}

}  // namespace
}  // namespace xmpi::criu
