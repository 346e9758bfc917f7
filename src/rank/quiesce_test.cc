// The safe point against a fake launcher and real MPICH ranks: every sentence of the quiesce that
// has an outcome, by steps of the protocol.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "rank/fake_launcher.h"

namespace xmpi::rank {
namespace {

using rank_link::Kind;
using rank_link::Message;
using testing::Test;

constexpr int kRanks = 3;

TEST(Quiesce, HelloNamesThreadRankVersionAndSignal) {
  FakeLauncher job(kRanks, {});
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(job.hello(rank).rank, static_cast<RankId>(rank));
    EXPECT_EQ(job.hello(rank).thread, static_cast<std::uint32_t>(job.pid(rank)));
    EXPECT_EQ(job.hello(rank).version, 100u);
    EXPECT_EQ(job.hello(rank).signal, static_cast<std::uint32_t>(SIGUSR2));
    EXPECT_EQ(job.hello(rank).words, "");
  }
  job.FinishWell(0);
}

TEST(Quiesce, TenCyclesWithBoundAndRegisteredObjects) {
  FakeLauncher job(4, {"bind", "register", "pool"});
  for (MigrationId migration = 1; migration <= 10; ++migration) job.WholeCycle(migration);
  job.FinishWell(10);
}

TEST(Quiesce, EchoesTheIdsOfItsProxy) {
  FakeLauncher job(kRanks, {});
  job.NoticeAll(1);
  for (const Received& noticed : job.ExpectAll(Kind::kNoticed, 1)) {
    EXPECT_EQ(noticed.slot, 7u);
    EXPECT_EQ(noticed.epoch, 3u);
    EXPECT_EQ(noticed.attempt, 2u);
  }
  job.CancelAll(1);
  job.FinishWell(0);
}

}  // namespace
}  // namespace xmpi::rank
