// The simulator itself (a seed is a run, a smaller scenario is found, the numbers are everyone's),
// and what it is for: twenty thousand seeds break no invariant and strike everything everywhere.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "sim/random.h"
#include "sim/runner.h"

namespace xmpi::sim {
namespace {

TEST(Random, IsTheSameEverywhere) {
  Random random(1);
  EXPECT_EQ(random.Next(), 0x910a2dec89025cc1u);
  EXPECT_EQ(random.Next(), 0xbeeb8da1658eec67u);
  Random fork = random.Fork(2);
  EXPECT_NE(fork.Next(), random.Next());
}

TEST(Run, IsDecidedByItsSeedAlone) {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    const RunResult once = RunScenario(MakeScenario(seed), true);
    EXPECT_GT(once.events, 100u);
    EXPECT_EQ(once.transcript, RunScenario(MakeScenario(seed), true).transcript);
  }
}

TEST(Run, WithoutFaultsMovesAndEndsWell) {
  Scenario scenario;
  scenario.seed = 7;
  scenario.moves = 3;
  const RunResult result = RunScenario(scenario, false);
  EXPECT_EQ(result.violation, "");
  EXPECT_TRUE(result.job_survived);
  EXPECT_EQ(result.moves_done, 3);
}

TEST(Shrink, KeepsOnlyWhatFails) {
  Scenario scenario = MakeScenario(3);
  scenario.slots = 3;
  scenario.moves = 3;
  scenario.faults = {{.kind = FaultKind::kCancel, .phase = core::Phase::kDump},
                     {.kind = FaultKind::kCrashHost, .phase = core::Phase::kRestore},
                     {.kind = FaultKind::kDelay, .phase = core::Phase::kPrepare}};
  const Scenario smallest = Shrink(scenario, [](const Scenario& less) {
    return less.slots >= 2 && std::ranges::any_of(less.faults, [](const Fault& fault) {
             return fault.kind == FaultKind::kCrashHost;
           });
  });
  EXPECT_EQ(smallest.slots, 2);
  EXPECT_EQ(smallest.moves, 1);
  ASSERT_EQ(smallest.faults.size(), 1u);
  EXPECT_EQ(smallest.faults.front().kind, FaultKind::kCrashHost);
}

TEST(Summary, CountsPossibleHitsOnly) {
  const auto json = nlohmann::json::parse(ToJson(RunSeeds(1, 20, 1)));
  EXPECT_EQ(json["runs"], 20);
  EXPECT_EQ(json["violations"], 0);
  EXPECT_TRUE(json["hits"]["handover"]["failing dump"].is_null());
  EXPECT_TRUE(json["hits"]["handover"]["host crash"].is_number());
}

TEST(Seeds, HoldEveryInvariant) {
  const Summary summary = RunSeeds(1, 20'000, std::thread::hardware_concurrency());
  EXPECT_EQ(summary.failures.size(), 0u) << Explain(summary.failures.front());
  EXPECT_GE(summary.reached_handover, summary.runs / 2);
  for (int phase = 0; phase < core::kPhases; ++phase) {
    for (int kind = 0; kind < kFaultKinds; ++kind) {
      const auto fault = static_cast<FaultKind>(kind);
      if (!CanStrike(fault, static_cast<core::Phase>(phase))) continue;
      EXPECT_GE(summary.hits[phase][kind], 100u)
          << Name(fault) << " in " << Name(static_cast<core::Phase>(phase));
    }
  }
}

}  // namespace
}  // namespace xmpi::sim
