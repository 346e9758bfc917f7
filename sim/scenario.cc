#include "sim/scenario.h"

#include <format>

#include "sim/random.h"

namespace xmpi::sim {
namespace {

using core::Phase;

// Moments spread over what a phase usually takes; many faults strike at its very beginning, where
// messages about it are still under way.
Time DelayIn(Phase phase, Random& random) {
  if (random.Percent(30)) return 0;
  switch (phase) {
    case Phase::kPrepare:
      return random.Between(0, 900 * kMs);
    case Phase::kQuiesce:
      return random.Between(0, 1200 * kMs);
    case Phase::kDump:
    case Phase::kTransfer:
    case Phase::kRestore:
      return random.Between(0, 250 * kMs);
    case Phase::kHandover:
      return 0;
    case Phase::kReconnect:
      return random.Between(0, 300 * kMs);
  }
  return 0;
}

Time DurationOf(FaultKind kind, Random& random) {
  switch (kind) {
    case FaultKind::kDelay:
      return random.Between(200 * kMs, 3 * kSecond);
    case FaultKind::kCutLink:
    case FaultKind::kSilence:
      return random.Between(20 * kMs, 4 * kSecond);
    case FaultKind::kLongSilence:
      return random.Between(13 * kSecond, 25 * kSecond);
    case FaultKind::kFreeze:
      return random.Percent(50) ? random.Between(50 * kMs, 4 * kSecond)
                                : random.Between(13 * kSecond, 20 * kSecond);
    case FaultKind::kRebootHost:
      return random.Between(2 * kSecond, 8 * kSecond);
    case FaultKind::kStallRank:
      return random.Percent(80) ? random.Between(100 * kMs, 4 * kSecond)
                                : random.Between(20 * kSecond, 60 * kSecond);
    case FaultKind::kSlowDump:
    case FaultKind::kSlowImages:
    case FaultKind::kSlowRestore:
      return random.Percent(60) ? random.Between(kSecond, 6 * kSecond)
                                : random.Between(17 * kSecond, 30 * kSecond);
    case FaultKind::kCutImages:
      return random.Between(50 * kMs, 3 * kSecond);
    default:
      return 0;
  }
}

Fault MakeFault(Random& random, int moves) {
  Fault fault;
  do {
    fault.kind = static_cast<FaultKind>(random.Below(kFaultKinds));
    fault.phase = static_cast<Phase>(random.Below(core::kPhases));
  } while (!CanStrike(fault.kind, fault.phase));
  fault.migration = static_cast<int>(random.Between(1, moves));
  fault.after = StrikesWork(fault.kind) ? 0 : DelayIn(fault.phase, random);
  fault.victim = static_cast<Victim>(random.Below(3));
  fault.duration = DurationOf(fault.kind, random);
  return fault;
}

}  // namespace

std::string_view Name(FaultKind kind) {
  constexpr std::string_view kNames[] = {
#define XMPI_SIM_NAME(name, words) words,
      XMPI_SIM_FAULTS(XMPI_SIM_NAME)
#undef XMPI_SIM_NAME
  };
  return kNames[static_cast<int>(kind)];
}

bool StrikesWork(FaultKind kind) {
  return kind >= FaultKind::kRefusingRank && kind <= FaultKind::kFailingRestore;
}

bool CanStrike(FaultKind kind, Phase phase) {
  switch (kind) {
    case FaultKind::kRefusingTarget:
      return phase == Phase::kPrepare;
    case FaultKind::kRefusingRank:
      return phase == Phase::kQuiesce;
    case FaultKind::kSlowDump:
    case FaultKind::kFailingDump:
      return phase == Phase::kDump;
    // Images travel while the dump runs, so they may also fail before the transfer alone is left.
    case FaultKind::kSlowImages:
    case FaultKind::kCutImages:
    case FaultKind::kCorruptImages:
      return phase == Phase::kTransfer;
    case FaultKind::kSlowRestore:
    case FaultKind::kFailingRestore:
      return phase == Phase::kRestore;
    default:
      return true;
  }
}

Scenario MakeScenario(std::uint64_t seed) {
  Random random = Random(seed).Fork(1);
  Scenario scenario;
  scenario.seed = seed;
  scenario.slots = static_cast<int>(random.Between(1, 3));
  scenario.ranks_per_slot = static_cast<int>(random.Between(1, 2));
  scenario.spares = static_cast<int>(random.Between(1, 3));
  scenario.share_node = scenario.slots > 1 && random.Percent(25);
  scenario.moves = static_cast<int>(random.Between(1, 3));
  scenario.name_target = random.Percent(20);
  scenario.last_move = random.Percent(40);
  scenario.step = random.Between(40, 500) * kMs;
  constexpr int kFaultsByTenth[] = {0, 1, 1, 1, 2, 2, 2, 3, 4, 5};
  for (int left = kFaultsByTenth[random.Below(10)]; left > 0; --left)
    scenario.faults.push_back(MakeFault(random, scenario.moves));
  return scenario;
}

std::string Describe(const Fault& fault) {
  constexpr std::string_view kVictims[] = {"source", "target", "staying node"};
  std::string text =
      std::format("{} in {} of migration {}", Name(fault.kind), Name(fault.phase), fault.migration);
  if (fault.after > 0) text += std::format(" + {} ms", fault.after / kMs);
  text += std::format(", {}", kVictims[static_cast<int>(fault.victim)]);
  if (fault.duration > 0) text += std::format(", for {} ms", fault.duration / kMs);
  return text;
}

std::string Describe(const Scenario& scenario) {
  std::string text = std::format(
      "seed {}: {} slots of {} ranks{}, {} spares, {} moves{}{}, steps of {} ms\n", scenario.seed,
      scenario.slots, scenario.ranks_per_slot, scenario.share_node ? " (two on one node)" : "",
      scenario.spares, scenario.moves, scenario.name_target ? " (some with --to)" : "",
      scenario.last_move ? " and a last one" : "", scenario.step / kMs);
  for (const Fault& fault : scenario.faults) text += "  " + Describe(fault) + "\n";
  return text;
}

}  // namespace xmpi::sim
