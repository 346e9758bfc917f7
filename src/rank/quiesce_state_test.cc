#include "rank/quiesce_state.h"

#include <gtest/gtest.h>

#include <vector>

namespace xmpi::rank {
namespace {

using rank_link::Kind;
using rank_link::Message;

Message Of(Kind kind, MigrationId migration, std::uint64_t stop_call = 0) {
  return {.kind = kind, .migration = migration, .stop_call = stop_call};
}

TEST(QuiesceState, AWholeMigration) {
  QuiesceState state;
  EXPECT_FALSE(state.active());
  EXPECT_EQ(state.On(Of(Kind::kNotice, 1), 7), Reaction::kReport);
  EXPECT_EQ(state.reported(), 7u);
  EXPECT_EQ(state.Next(7), Step::kGoOn) << "the report counted this call, so stop_call is later";
  EXPECT_EQ(state.Next(8), Step::kWait);
  EXPECT_EQ(state.On(Of(Kind::kAgree, 1, 9), 8), Reaction::kNone);
  EXPECT_EQ(state.Next(8), Step::kGoOn);
  EXPECT_EQ(state.Next(9), Step::kArrive);
  EXPECT_EQ(state.Next(10), Step::kMissed);
  state.Arrive(false);
  EXPECT_EQ(state.On(Of(Kind::kCheck, 1), 9), Reaction::kNone);
  EXPECT_EQ(state.EndCheck(false), Reaction::kNone);
  EXPECT_EQ(state.On(Of(Kind::kTeardown, 1), 9), Reaction::kNone);
  EXPECT_EQ(state.state(), State::kTearing);
  state.Park();
  EXPECT_EQ(state.On(Of(Kind::kEnv, 1), 9), Reaction::kNone);
  EXPECT_EQ(state.On(Of(Kind::kContinue, 1), 9), Reaction::kNone);
  state.Reopened();
  EXPECT_FALSE(state.active());
  EXPECT_EQ(state.stale(), 0u);
}

TEST(QuiesceState, OnlyAMigrationNewerThanAnyEndedOneStarts) {
  QuiesceState state;
  state.On(Of(Kind::kNotice, 3), 1);
  EXPECT_EQ(state.On(Of(Kind::kCancel, 3), 1), Reaction::kResume);
  EXPECT_EQ(state.On(Of(Kind::kNotice, 3), 1), Reaction::kStale);
  EXPECT_EQ(state.On(Of(Kind::kNotice, 2), 1), Reaction::kStale);
  EXPECT_EQ(state.On(Of(Kind::kNotice, 4), 1), Reaction::kReport);
  EXPECT_EQ(state.stale(), 2u);
}

TEST(QuiesceState, NothingOfAnotherMigrationChangesAnything) {
  for (const Kind kind : {Kind::kNotice, Kind::kAgree, Kind::kCheck, Kind::kTeardown, Kind::kCancel,
                          Kind::kEnv, Kind::kContinue}) {
    QuiesceState state;
    state.On(Of(Kind::kNotice, 5), 1);
    state.On(Of(Kind::kAgree, 5, 2), 1);
    for (const MigrationId other : {4u, 6u})
      EXPECT_EQ(state.On(Of(kind, other, kind == Kind::kAgree ? 9 : 0), 1), Reaction::kStale);
    EXPECT_EQ(state.state(), State::kAgreed);
    EXPECT_EQ(state.stop_call(), 2u);
    EXPECT_EQ(state.migration(), 5u);
  }
}

TEST(QuiesceState, ACancelInsideTheBarrierWaitsForItsEnd) {
  QuiesceState state;
  state.On(Of(Kind::kNotice, 1), 0);
  state.On(Of(Kind::kAgree, 1, 1), 0);
  state.Arrive(false);
  state.On(Of(Kind::kCheck, 1), 1);
  EXPECT_EQ(state.On(Of(Kind::kCancel, 1), 1), Reaction::kNone);
  EXPECT_EQ(state.state(), State::kWithdrawn);
  EXPECT_TRUE(state.active());
  EXPECT_EQ(state.EndCheck(true), Reaction::kResume);
  EXPECT_FALSE(state.active());
}

TEST(QuiesceState, ARefusedRankIsNotSentIntoTheBarrier) {
  QuiesceState state;
  state.On(Of(Kind::kNotice, 1), 0);
  state.On(Of(Kind::kAgree, 1, 1), 0);
  state.Arrive(true);
  EXPECT_EQ(state.On(Of(Kind::kCheck, 1), 1), Reaction::kStale);
  EXPECT_EQ(state.On(Of(Kind::kTeardown, 1), 1), Reaction::kStale);
  EXPECT_EQ(state.On(Of(Kind::kCancel, 1), 1), Reaction::kResume);
}

TEST(QuiesceState, NoCancelAfterTeardown) {
  QuiesceState state;
  state.On(Of(Kind::kNotice, 1), 0);
  state.On(Of(Kind::kAgree, 1, 1), 0);
  state.Arrive(false);
  state.On(Of(Kind::kCheck, 1), 1);
  state.EndCheck(false);
  state.On(Of(Kind::kTeardown, 1), 1);
  EXPECT_EQ(state.On(Of(Kind::kCancel, 1), 1), Reaction::kStale);
  state.Park();
  EXPECT_EQ(state.On(Of(Kind::kCancel, 1), 1), Reaction::kStale);
  EXPECT_EQ(state.On(Of(Kind::kNotice, 2), 1), Reaction::kStale);
  EXPECT_EQ(state.state(), State::kParked);
}

// Whatever arrives while a rank computes and passes safe points: it stops only at the stop_call of
// the migration it was last noticed of, and never at a call that its report counted.
TEST(QuiesceState, AnyOrderOfMessages) {
  const std::vector<Message> alphabet = {
      Of(Kind::kNotice, 1),   Of(Kind::kNotice, 2),   Of(Kind::kAgree, 1, 2),
      Of(Kind::kAgree, 2, 3), Of(Kind::kCancel, 1),   Of(Kind::kCancel, 2),
      Of(Kind::kCheck, 1),    Of(Kind::kTeardown, 2), Of(Kind::kContinue, 1)};
  constexpr int kLength = 5;
  int total = 1;
  for (int i = 0; i < kLength; ++i) total *= static_cast<int>(alphabet.size());
  for (int word = 0; word < total; ++word) {
    QuiesceState state;
    std::uint64_t passed = 0;
    for (int rest = word, i = 0; i < kLength; ++i, rest /= static_cast<int>(alphabet.size())) {
      state.On(alphabet[rest % alphabet.size()], passed);
      if (state.Next(passed) == Step::kGoOn) ++passed;
      if (state.Next(passed) == Step::kArrive) {
        ASSERT_EQ(state.state(), State::kAgreed);
        ASSERT_EQ(passed, state.stop_call());
      }
      if (state.state() == State::kNoticed && state.Next(passed) == Step::kWait) {
        ASSERT_GT(passed, state.reported());
      }
      ASSERT_NE(state.state(), State::kTearing) << "no teardown without arrive and check";
    }
  }
}

}  // namespace
}  // namespace xmpi::rank
