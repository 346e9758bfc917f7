// What stands in the way of a move is refused by name and the job goes on (steps 4 and 5), and
// misuse of the interface is an error that is said; real MPICH ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>

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

// Step 4: what is in the way is named, by the rank that holds it, and the job goes on.
struct Refusal {
  const char* breach;
  const char* text;
};
class Arrive : public testing::TestWithParam<Refusal> {};

TEST_P(Arrive, RefusesByNameAndTheJobGoesOn) {
  FakeLauncher job(kRanks, {"bind", "gate=5", std::string("breach=") + GetParam().breach});
  EXPECT_EQ(AgreeAtGate(&job, 1), 5u);
  job.MakeFile("open");
  const auto arrived = job.ExpectAll(Kind::kArrived, 1);
  EXPECT_TRUE(arrived[1].refused);
  EXPECT_THAT(arrived[1].words, HasSubstr(GetParam().text));
  job.CancelAll(1);
  job.WholeCycle(2);  // what was in the way has been put right
  job.FinishWell(1);
}

INSTANTIATE_TEST_SUITE_P(
    Breaches, Arrive,
    testing::Values(Refusal{"pending", "pending request of MPI_Irecv (1 pending in all)"},
                    Refusal{"persistent", "persistent request of MPI_Recv_init"},
                    Refusal{"idup", "pending request of MPI_Comm_idup"},
                    Refusal{"window", "open window of MPI_Win_create"},
                    Refusal{"forgotten", "communicator \"lost and found\" of MPI_Comm_dup"},
                    Refusal{"type", "derived datatype of MPI_Type_contiguous"},
                    Refusal{"session", "other MPI session of MPI_Session_init"},
                    Refusal{"changed", "no longer holds it"}),
    [](const auto& info) { return info.param.breach; });

// MPICH would abort the job in one of the next sessions; how soon depends on what the program uses.
class Room : public testing::TestWithParam<const char*> {};

TEST_P(Room, WhenMpichHasNoneForAnotherSessionTheJobGoesOnInPlace) {
  FakeLauncher job(kRanks, {"bind", "register", GetParam()});
  MigrationId migration = 0;
  for (bool refused = false; !refused;) {
    job.AgreeAll(++migration);
    const auto arrived = job.ExpectAll(Kind::kArrived, migration);
    refused = arrived[0].refused;
    if (refused) {
      EXPECT_THAT(arrived[0].words, HasSubstr("has no room for another session after"));
      break;
    }
    job.SendAll({.kind = Kind::kCheck, .migration = migration});
    job.ExpectAll(Kind::kChecked, migration);
    job.SendAll({.kind = Kind::kTeardown, .migration = migration});
    job.ExpectAll(Kind::kParked, migration);
    job.ContinueAll(migration);
    ASSERT_LT(migration, 52u);
  }
  EXPECT_GT(migration, 20u) << "twenty moves must be possible";
  job.CancelAll(migration);
  job.FinishWell(static_cast<int>(migration) - 1);
}

INSTANTIATE_TEST_SUITE_P(Programs, Room, testing::Values("pool", "all_pools"),
                         [](const auto& info) { return info.param; });

TEST(Arrive, AnotherThreadsCallIsAnErrorNamingBothAndRefused) {
  FakeLauncher job(kRanks, {"thread", "gate=5"});
  EXPECT_EQ(AgreeAtGate(&job, 1), 5u);
  job.MakeFile("open");
  const auto arrived = job.ExpectAll(Kind::kArrived, 1);
  const std::string own = std::to_string(job.hello(1).thread);
  EXPECT_FALSE(arrived[0].refused);
  EXPECT_TRUE(arrived[1].refused);
  EXPECT_THAT(arrived[1].words, HasSubstr("but XMPI_Init by thread " + own));
  job.CancelAll(1);
  job.FinishWell(0);
  EXPECT_THAT(job.Errors(), HasSubstr("but XMPI_Init by thread " + own));
  EXPECT_THAT(job.Errors(), testing::Not(HasSubstr("the stray call passed")));
}

// Step 5.
TEST(Check, AnUnmatchedMessageIsNamed) {
  FakeLauncher job(kRanks, {"bind", "gate=5", "breach=message"});
  AgreeAtGate(&job, 1);
  job.MakeFile("open");
  for (const Received& arrived : job.ExpectAll(Kind::kArrived, 1))
    EXPECT_FALSE(arrived.refused) << arrived.words;
  job.SendAll({.kind = Kind::kCheck, .migration = 1});
  const auto checked = job.ExpectAll(Kind::kChecked, 1);
  EXPECT_TRUE(checked[0].refused);
  EXPECT_THAT(checked[0].words,
              HasSubstr("unmatched message on XMPI_COMM_WORLD from its rank 1, tag 1234, 4 bytes"));
  EXPECT_FALSE(checked[1].refused);
  EXPECT_FALSE(checked[2].refused);
  job.CancelAll(1);
  job.WholeCycle(2);
  job.FinishWell(1);
}

TEST(Check, AnUnmatchedMessageOnABoundCommunicatorIsNamed) {
  FakeLauncher job(kRanks, {"bind", "gate=5", "breach=row_message", "rank=2"});
  AgreeAtGate(&job, 1);
  job.MakeFile("open");
  job.ExpectAll(Kind::kArrived, 1);
  job.SendAll({.kind = Kind::kCheck, .migration = 1});
  const auto checked = job.ExpectAll(Kind::kChecked, 1);
  EXPECT_TRUE(checked[0].refused);
  EXPECT_THAT(checked[0].words, HasSubstr("unmatched message on row from its rank 0, tag 99"));
  job.CancelAll(1);
  job.WholeCycle(2);
  job.FinishWell(1);
}

TEST(Misuse, ASafePointInsideACallbackIsRefused) {
  FakeLauncher job(kRanks, {"register", "inside"});
  job.WholeCycle(1);
  job.FinishWell(1);
  EXPECT_THAT(job.Errors(), HasSubstr("called inside a callback of XMPI_Register"));
}

TEST(Misuse, IsSaidAndReturnsAnError) {
  FakeLauncher job(2, {"misuse", "steps=3"});
  EXPECT_EQ(job.Wait(), 0) << job.Errors();
  EXPECT_THAT(job.Errors(),
              AllOf(HasSubstr("XMPI_Quiesce was called before XMPI_Init"),
                    HasSubstr("XMPI_Init: called twice"), HasSubstr("MPI_Init after XMPI_Init"),
                    HasSubstr("XMPI_Comm_unbind: the variable is not bound"),
                    HasSubstr("XMPI_Finalize: called after XMPI_Finalize")));
}

}  // namespace
}  // namespace xmpi::rank
