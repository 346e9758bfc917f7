// The safe point against a fake launcher and real MPICH ranks: every sentence of the quiesce that
// has an outcome, step by step. The ranks wait at a gate before a safe point where it matters
// which call it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>
#include <sstream>
#include <string>

#include "rank/fake_launcher.h"

namespace xmpi::rank {
namespace {

using rank_link::Kind;
using rank_link::Message;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kRanks = 3;

// All ranks at the gate before call 5, noticed there, so that stop_call is 5.
std::uint64_t AgreeAtGate(FakeLauncher* job, MigrationId migration) {
  job->WaitForFiles("gate");
  return job->AgreeAll(migration);
}

TEST(Hello, NamesThreadRankVersionAndSignal) {
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

TEST(Hello, TheSignalIsChosenByTheEnvironment) {
  FakeLauncher job(kRanks, {}, {"XMPI_SIGNAL=SIGUSR1"});
  EXPECT_EQ(job.hello(0).signal, static_cast<std::uint32_t>(SIGUSR1));
  job.WholeCycle(1);
  job.FinishWell(1);
}

TEST(Cycle, TenTimesWithBoundAndRegisteredObjects) {
  FakeLauncher job(4, {"bind", "register", "pool"});
  for (MigrationId migration = 1; migration <= 10; ++migration) job.WholeCycle(migration);
  job.FinishWell(10);
}

TEST(Cycle, WithSeveralThreads) {
  FakeLauncher job(kRanks, {"bind", "multiple"});
  job.WholeCycle(1);
  job.WholeCycle(2);
  job.FinishWell(2);
}

TEST(Cycle, AParkedRankHasOneThreadAndNoSharedMemory) {
  FakeLauncher job(kRanks, {"bind", "register"});
  job.AgreeAll(1);
  job.ParkAll(1);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_THAT(job.Proc(rank, "status"), HasSubstr("\nThreads:\t1\n"));
    EXPECT_THAT(job.Proc(rank, "maps"), testing::Not(HasSubstr("/dev/shm/")));
  }
  job.ContinueAll(1);
  job.FinishWell(1);
}

// What it listens on, and whether those sockets are open still.
struct Listed {
  std::string process;
  int listening = 0;
  int open = 0;
};
Listed ListedOf(const FakeLauncher& job, int rank) {
  std::set<std::string> open;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(job.pid(rank)) + "/fd"))
    open.insert(std::filesystem::read_symlink(entry).string());
  Listed listed;
  std::istringstream words(job.sockets(rank));
  words >> listed.process;
  for (std::string word; words >> word;) {
    listed.listening += word.contains('@') ? 1 : 0;
    listed.open += open.contains("socket:[" + word.substr(0, word.find('@')) + "]") ? 1 : 0;
  }
  return listed;
}

TEST(Cycle, TheSocketsThatWillBeClosedAreTold) {
  FakeLauncher job(kRanks, {"listen", "gate=5"}, {"MPIR_CVAR_NOLOCAL=1", "UCX_TLS=tcp,self"});
  int listening = 0;
  for (int cycle = 0; cycle < 2; ++cycle) {
    if (cycle == 0) {
      AgreeAtGate(&job, 1);  // past XMPI_Register
      job.MakeFile("open");
    } else {
      job.AgreeAll(2);
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      const Listed listed = ListedOf(job, rank);
      EXPECT_EQ(listed.process, std::to_string(job.pid(rank)));
      EXPECT_GE(listed.listening, 2) << job.sockets(rank);  // MPI's, and the registered one
      EXPECT_GE(listed.open, listed.listening) << job.sockets(rank);
      if (rank != 0) continue;
      if (cycle == 0) listening = listed.listening;
      EXPECT_EQ(listed.listening, listening) << "those of the last session too?";
    }
    const MigrationId migration = static_cast<MigrationId>(cycle + 1);
    job.ParkAll(migration);
    for (int rank = 0; rank < kRanks; ++rank)
      EXPECT_EQ(ListedOf(job, rank).open, 0) << job.sockets(rank);
    job.ContinueAll(migration);
  }
  job.FinishWell(2);
}

// What every cycle leaves behind shows in each window of cycles; a cache of MPI's that fills once,
// in one.
TEST(Cycle, ManyTimesWithoutGrowing) {
  constexpr MigrationId kWindow = 6;
  constexpr MigrationId kCycles = 24;
  FakeLauncher job(kRanks, {"bind", "register"});
  long before_kb = 0;
  int before_files = 0;
  long least_kb = std::numeric_limits<long>::max();
  for (MigrationId migration = 1; migration <= kCycles; ++migration) {
    job.WholeCycle(migration);
    if (migration % kWindow != 0) continue;
    const long now_kb = job.ResidentKb(1);
    if (migration > kWindow) {
      least_kb = std::min(least_kb, (now_kb - before_kb) / static_cast<long>(kWindow));
      EXPECT_EQ(job.OpenFiles(1), before_files);
    }
    before_kb = now_kb;
    before_files = job.OpenFiles(1);
  }
  EXPECT_LE(least_kb, 16);
  job.FinishWell(kCycles);
}

TEST(Cycle, OneRankIsMuchSlower) {
  FakeLauncher job(kRanks, {"bind", "slow=2,80"});
  job.WholeCycle(1);
  job.WholeCycle(2);
  job.FinishWell(2);
}

TEST(Cycle, EnvironmentReachesTheRankBeforeItReopens) {
  FakeLauncher job(kRanks, {"print_env=XMPI_TEST_VALUE"});
  job.AgreeAll(1);
  job.ParkAll(1);
  const std::string value(8000, 'v');
  job.SendAll({.kind = Kind::kEnv, .migration = 1, .name = "XMPI_TEST_VALUE", .text = value});
  job.SendAll({.kind = Kind::kEnv, .migration = 1, .name = "XMPI_TEST_EMPTY"});
  job.ContinueAll(1);
  job.FinishWell(1);
  EXPECT_THAT(job.Output(), HasSubstr("XMPI_TEST_VALUE=" + value + "\n"));
}

TEST(Cycle, ANoticeRightBehindContinueIsReportedAndStopsAgain) {
  FakeLauncher job(kRanks, {"bind"});
  job.AgreeAll(1);
  job.ParkAll(1);
  for (int rank = 0; rank < kRanks; ++rank) {
    job.Send(rank, {.kind = Kind::kContinue, .migration = 1});
    job.Notice(rank, 2);
  }
  job.ExpectAll(Kind::kRunning, 1);
  std::uint64_t passed = 0;
  for (const Received& noticed : job.ExpectAll(Kind::kNoticed, 2))
    passed = std::max(passed, noticed.passed);
  job.SendAll({.kind = Kind::kAgree, .migration = 2, .stop_call = passed + 1});
  job.ParkAll(2);
  job.ContinueAll(2);
  job.FinishWell(2);
}

TEST(Cycle, StoppingAndContinuingAParkedRankIsHarmless) {
  FakeLauncher job(kRanks, {});
  job.AgreeAll(1);
  job.ParkAll(1);
  for (int round = 0; round < 5; ++round) {
    ::kill(job.pid(0), SIGSTOP);
    ::kill(job.pid(0), SIGCONT);
    job.Signal(0);  // a stray notice signal: no message, nothing to do
  }
  EXPECT_FALSE(job.Pending(0));
  job.ContinueAll(1);
  job.FinishWell(1);
}

// Step 2: the report counts a call, or that call sees the flag.
TEST(Notice, RanksAreAtDifferentCallsAndStopAtTheSame) {
  // Rank 2 waits before its call 5; its neighbours in the ring hang in step 6 and rank 0 in step 7.
  FakeLauncher job(4, {"loose", "gate=5", "gate_rank=2", "mark=7", "steps=40"});
  job.WaitForFile("gate", 2);
  job.WaitForFile("mark", 0);
  job.NoticeAll(1);
  std::vector<std::uint64_t> passed;
  for (const Received& noticed : job.ExpectAll(Kind::kNoticed, 1)) passed.push_back(noticed.passed);
  EXPECT_THAT(passed, testing::ElementsAre(6, 5, 4, 5));
  const std::uint64_t stop_call = *std::ranges::max_element(passed) + 1;
  job.SendAll({.kind = Kind::kAgree, .migration = 1, .stop_call = stop_call});
  job.MakeFile("open");
  for (const Received& arrived : job.ExpectAll(Kind::kArrived, 1)) {
    EXPECT_EQ(arrived.passed, stop_call);
    EXPECT_FALSE(arrived.refused) << arrived.words;
  }
  job.SendAll({.kind = Kind::kCheck, .migration = 1});
  job.ExpectAll(Kind::kChecked, 1);
  job.SendAll({.kind = Kind::kTeardown, .migration = 1});
  job.ExpectAll(Kind::kParked, 1);
  job.ContinueAll(1);
  job.FinishWell(1);
}

TEST(Notice, ARankThatDoesNotKnowStopCallWaitsInTheCall) {
  FakeLauncher job(kRanks, {"gate=5"});
  job.WaitForFiles("gate");
  job.NoticeAll(1);
  for (const Received& noticed : job.ExpectAll(Kind::kNoticed, 1)) EXPECT_EQ(noticed.passed, 4u);
  job.MakeFile("open");
  // No agreement: they wait in call 5. A stop_call of 6 lets them pass that one.
  job.SendAll({.kind = Kind::kAgree, .migration = 1, .stop_call = 6});
  for (const Received& arrived : job.ExpectAll(Kind::kArrived, 1)) EXPECT_EQ(arrived.passed, 6u);
  job.CancelAll(1);
  job.FinishWell(0);
}

TEST(Notice, RepeatedIsAnsweredWithTheSameCount) {
  FakeLauncher job(kRanks, {});
  job.NoticeAll(1);
  const auto first = job.ExpectAll(Kind::kNoticed, 1);
  job.NoticeAll(1);
  const auto second = job.ExpectAll(Kind::kNoticed, 1);
  std::uint64_t passed = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(first[rank].passed, second[rank].passed);
    passed = std::max(passed, first[rank].passed);
  }
  job.SendAll({.kind = Kind::kAgree, .migration = 1, .stop_call = passed + 1});
  job.NoticeAll(1);  // between agree and arrive, or after it
  for (int rank = 0; rank < kRanks; ++rank) {
    bool arrived = false, repeated = false;
    while (!arrived || !repeated) {
      const Received received = job.Next(rank);
      arrived |= received.kind == Kind::kArrived;
      repeated |= received.kind == Kind::kNoticed && received.passed == first[rank].passed;
    }
  }
  job.CancelAll(1);
  job.FinishWell(0);
}

TEST(Notice, AFloodIsAnsweredAndHarmless) {
  FakeLauncher job(kRanks, {});
  constexpr int kFlood = 300;
  constexpr int kUnread =
      50;  // so many fit the socket; behind a full one, an answer is for several
  int answers[kRanks] = {};
  for (int i = 0; i < kFlood; ++i) {
    job.NoticeAll(1);
    for (int rank = 0; rank < kRanks; ++rank)
      while (i - answers[rank] > kUnread)
        answers[rank] += job.Expect(rank, Kind::kNoticed, 1).migration;
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    while (answers[rank] < kFlood) answers[rank] += job.Expect(rank, Kind::kNoticed, 1).migration;
    for (int i = 0; i < kFlood; ++i) job.Signal(rank);
  }
  job.CancelAll(1);
  job.WholeCycle(2);
  job.FinishWell(1);
}

TEST(Notice, AFloodWhoseAnswersNobodyReadsNeverBlocksTheHandler) {
  FakeLauncher job(kRanks, {"gate=5"});
  job.WaitForFiles("gate");
  constexpr int kFlood = 1000;  // more than fit the socket
  for (int i = 0; i < kFlood; ++i) job.NoticeAll(1);
  job.SendAll({.kind = Kind::kCancel, .migration = 1, .text = "the test says so"});
  job.MakeFile("open");
  for (int rank = 0; rank < kRanks; ++rank) {
    int answers = 0;
    for (Received received = job.Next(rank); received.kind != Kind::kResumed; ++answers) {
      ASSERT_EQ(received.kind, Kind::kNoticed);
      received = job.Next(rank);
    }
    EXPECT_GE(answers, 1);
  }
  job.WholeCycle(2);
  job.FinishWell(1);
}

TEST(Notice, OneBehindACancelThatNobodyReadYetIsReportedAtOnce) {
  FakeLauncher job(kRanks, {"gate=5"});
  AgreeAtGate(&job, 1);
  // No signal with a cancel: it lies unread while the ranks compute.
  job.SendAll({.kind = Kind::kCancel, .migration = 1, .text = "first"});
  job.NoticeAll(2);
  job.ExpectAll(Kind::kResumed, 1);
  for (const Received& noticed : job.ExpectAll(Kind::kNoticed, 2)) EXPECT_EQ(noticed.passed, 4u);
  job.SendAll({.kind = Kind::kCancel, .migration = 2, .text = "second"});
  job.MakeFile("open");
  job.ExpectAll(Kind::kResumed, 2);
  job.WholeCycle(3);
  job.FinishWell(1);
}

TEST(Notice, AnOlderMigrationIsIgnored) {
  FakeLauncher job(kRanks, {});
  job.NoticeAll(5);
  job.ExpectAll(Kind::kNoticed, 5);
  job.CancelAll(5);
  job.NoticeAll(5);
  job.NoticeAll(4);
  job.WholeCycle(6);
  job.FinishWell(1);
}

TEST(Agree, OfAnotherMigrationIsIgnored) {
  FakeLauncher job(kRanks, {"gate=5"});
  job.WaitForFiles("gate");
  job.NoticeAll(3);
  job.ExpectAll(Kind::kNoticed, 3);
  job.SendAll({.kind = Kind::kAgree, .migration = 2, .stop_call = 7});
  job.SendAll({.kind = Kind::kAgree, .migration = 3, .stop_call = 5});
  job.SendAll(
      {.kind = Kind::kAgree, .migration = 3, .stop_call = 9});  // contradicts: the first holds
  job.MakeFile("open");
  for (const Received& arrived : job.ExpectAll(Kind::kArrived, 3)) EXPECT_EQ(arrived.passed, 5u);
  job.SendAll({.kind = Kind::kCancel, .migration = 2, .text = "of another"});
  job.SendAll({.kind = Kind::kCheck, .migration = 3});
  job.ExpectAll(Kind::kChecked, 3);
  job.CancelAll(3);
  job.FinishWell(0);
}

TEST(Agree, AStopCallThatLiesBehindIsRefused) {
  FakeLauncher job(kRanks, {"gate=5"});
  job.WaitForFiles("gate");
  job.NoticeAll(1);
  job.ExpectAll(Kind::kNoticed, 1);
  job.SendAll({.kind = Kind::kAgree, .migration = 1, .stop_call = 2});
  job.MakeFile("open");
  for (const Received& arrived : job.ExpectAll(Kind::kArrived, 1)) {
    EXPECT_TRUE(arrived.refused);
    EXPECT_THAT(arrived.words, HasSubstr("stop_call 2 lies behind call 5"));
  }
  job.CancelAll(1);
  job.WholeCycle(2);
  job.FinishWell(1);
}

// Step 5.
TEST(Check, ACancelInsideTheBarrierTakesEffectAfterIt) {
  FakeLauncher job(kRanks, {"gate=5"});
  AgreeAtGate(&job, 1);
  job.MakeFile("open");
  job.ExpectAll(Kind::kArrived, 1);
  // Ranks 0 and 1 are in the barrier, and told to give up, before rank 2 is sent into it.
  for (const int rank : {0, 1}) {
    job.Send(rank, {.kind = Kind::kCheck, .migration = 1});
    job.Send(rank, {.kind = Kind::kCancel, .migration = 1, .text = "too late"});
    job.Notice(rank, 2);
  }
  job.Send(2, {.kind = Kind::kCheck, .migration = 1});
  job.Send(2, {.kind = Kind::kCancel, .migration = 1, .text = "too late"});
  for (const int rank : {0, 1}) {
    job.Expect(rank, Kind::kResumed, 1);
    EXPECT_EQ(job.Expect(rank, Kind::kNoticed, 2).passed, 5u);
  }
  const Received last = job.Next(2);  // it may have ended the barrier before it read the cancel
  if (last.kind == Kind::kChecked) job.Expect(2, Kind::kResumed, 1);
  job.Notice(2, 2);
  const std::uint64_t passed = job.Expect(2, Kind::kNoticed, 2).passed;
  job.SendAll(
      {.kind = Kind::kAgree, .migration = 2, .stop_call = std::max<std::uint64_t>(passed, 5) + 1});
  job.ParkAll(2);
  job.ContinueAll(2);
  job.FinishWell(1);
}

// Cancel at each step before teardown: everybody goes on in place, and a later move works.
TEST(Cancel, BeforeTheAgreementWhileComputing) {
  FakeLauncher job(kRanks, {"gate=5"});
  job.WaitForFiles("gate");
  job.NoticeAll(1);
  job.ExpectAll(Kind::kNoticed, 1);
  job.SendAll({.kind = Kind::kCancel, .migration = 1, .text = "changed my mind"});
  job.MakeFile("open");
  // A rank may read the cancel at its gate still, or in the call behind it.
  for (const Received& resumed : job.ExpectAll(Kind::kResumed, 1))
    EXPECT_THAT(resumed.passed, testing::AnyOf(4u, 5u));
  job.WholeCycle(2);
  job.FinishWell(1);
}

TEST(Cancel, WhileWaitingForTheAgreementInTheCall) {
  FakeLauncher job(kRanks, {});
  job.NoticeAll(1);
  job.ExpectAll(Kind::kNoticed, 1);
  job.CancelAll(1);
  job.WholeCycle(2);
  job.FinishWell(1);
}

TEST(Cancel, AfterArriveAndAfterCheck) {
  FakeLauncher job(kRanks, {"bind"});
  job.AgreeAll(1);
  job.ExpectAll(Kind::kArrived, 1);
  job.CancelAll(1);
  job.AgreeAll(2);
  job.ExpectAll(Kind::kArrived, 2);
  job.SendAll({.kind = Kind::kCheck, .migration = 2});
  job.ExpectAll(Kind::kChecked, 2);
  job.CancelAll(2);
  job.WholeCycle(3);
  job.FinishWell(1);
}

TEST(Cancel, AfterTeardownIsVoid) {
  FakeLauncher job(kRanks, {"bind"});
  job.AgreeAll(1);
  job.ParkAll(1);
  job.SendAll({.kind = Kind::kCancel, .migration = 1, .text = "too late"});
  job.ContinueAll(1);
  job.FinishWell(1);
}

TEST(Finalize, BeforeStopCallIsSaidAndNobodyDies) {
  FakeLauncher job(kRanks, {"bind", "register", "gate=5", "finalize"});
  job.WaitForFiles("gate");
  job.NoticeAll(1);
  job.ExpectAll(Kind::kNoticed, 1);
  job.SendAll({.kind = Kind::kAgree, .migration = 1, .stop_call = 9});
  job.MakeFile("open");
  for (int rank = 0; rank < kRanks; ++rank)
    EXPECT_EQ(job.Expect(rank, Kind::kFinalizing, 0).passed, 4u);
  job.SendAll({.kind = Kind::kCancel, .migration = 1, .text = "finalize"});
  job.FinishWell(0);
}

TEST(Finalize, ASignalDuringAndAfterItIsHarmless) {
  FakeLauncher job(kRanks, {"gate=5", "finalize", "linger"});
  job.WaitForFiles("gate");
  job.MakeFile("open");
  job.ExpectAll(Kind::kFinalizing, 0);
  job.NoticeAll(1);
  job.NoticeAll(2);
  job.WaitForFiles("finalized");
  job.NoticeAll(3);
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_FALSE(job.Pending(rank));
  job.FinishWell(0);
}

TEST(Link, AMalformedPacketIsSaidAndSkipped) {
  FakeLauncher job(kRanks, {"gate=5"});
  job.WaitForFiles("gate");
  job.SendBytes(0, "rubbish");
  job.SendBytes(0, std::string(9000, 'x'));
  job.Signal(0);
  job.MakeFile("open");
  job.Notice(0, 1);
  EXPECT_THAT(job.Expect(0, Kind::kNoticed, 1).passed, testing::Ge(4u));
  job.Notice(1, 1), job.Notice(2, 1);
  job.Expect(1, Kind::kNoticed, 1), job.Expect(2, Kind::kNoticed, 1);
  job.CancelAll(1);
  job.WholeCycle(2);
  job.FinishWell(1);
  EXPECT_THAT(job.Errors(), HasSubstr("rank 0: a packet from the proxy is malformed"));
}

// Hydra's own code says nothing here and below: where ranks end by themselves and are killed by it
// as well, it may even be 0. xmpiexec's is in the lab's tests.
TEST(Link, WhenTheProxyIsGoneAParkedRankEnds) {
  FakeLauncher job(kRanks, {});
  job.AgreeAll(1);
  job.ParkAll(1);
  for (int rank = 0; rank < kRanks; ++rank) job.CloseControl(rank);
  job.Wait();
  EXPECT_THAT(job.Errors(), HasSubstr("the proxy is gone; this rank ends"));
}

TEST(Link, WhenTheProxyIsGoneARankThatComputesGoesOn) {
  FakeLauncher job(kRanks, {"bind"});
  for (int rank = 0; rank < kRanks; ++rank) job.CloseControl(rank);
  job.FinishWell(0);
}

TEST(Abort, IsMpiAbortWithItsCode) {
  FakeLauncher job(kRanks, {"abort=37"});
  job.Wait();
  EXPECT_THAT(job.Errors(), HasSubstr("Abort(37)"));
}

TEST(Link, WithoutALauncherTheSafePointDoesNothing) {
  EXPECT_EQ(FakeLauncher::RunPlain(3, {"bind", "register", "steps=50"}), 0);
  EXPECT_EQ(FakeLauncher::RunPlain(0, {"register", "steps=50"}), 0);
}

}  // namespace
}  // namespace xmpi::rank
