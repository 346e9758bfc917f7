// Scenario: everything that a seed decides before the run begins: the job's shape, the operator's
// orders, the faults and the moments at which they strike. A value, so that a failing one can be
// made smaller by taking things away.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/phase.h"
#include "sim/event_queue.h"

namespace xmpi::sim {

// X(name, words)
#define XMPI_SIM_FAULTS(X)                                         \
  X(kDelay, "delay")              /* the network is slow */        \
  X(kCutLink, "cut link")         /* redialled at once */          \
  X(kSilence, "silence")          /* shorter than link_timeout */  \
  X(kLongSilence, "long silence") /* longer: both ends give up */  \
  X(kFreeze, "freeze")            /* a host stands still */        \
  X(kCrashLauncher, "launcher crash")                              \
  X(kCrashProxy, "proxy crash")                                    \
  X(kCrashRank, "rank crash")                                      \
  X(kCrashHost, "host crash") /* for good */                       \
  X(kRebootHost, "host reboot")                                    \
  X(kStallRank, "slow rank")                                       \
  X(kRefusingRank, "refusing rank")     /* a request is pending */ \
  X(kRefusingTarget, "refusing target") /* preflight says no */    \
  X(kSlowDump, "slow dump")                                        \
  X(kFailingDump, "failing dump")                                  \
  X(kSlowImages, "slow images")                                    \
  X(kCutImages, "cut images")                                      \
  X(kCorruptImages, "corrupt images")                              \
  X(kSlowRestore, "slow restore")                                  \
  X(kFailingRestore, "failing restore")                            \
  X(kSameOrder, "same order")         /* the same node again */    \
  X(kCrossingOrder, "crossing order") /* another node meanwhile */ \
  X(kUrgentOrder, "urgent order")     /* ... that cannot wait */   \
  X(kTargetOrder, "target order")     /* the target leaves too */  \
  X(kCancel, "cancel")

enum class FaultKind {
#define XMPI_SIM_ENUM(name, words) name,
  XMPI_SIM_FAULTS(XMPI_SIM_ENUM)
#undef XMPI_SIM_ENUM
};
inline constexpr int kFaultKinds = 0
#define XMPI_SIM_COUNT(name, words) +1
    XMPI_SIM_FAULTS(XMPI_SIM_COUNT)
#undef XMPI_SIM_COUNT
    ;
std::string_view Name(FaultKind kind);

// Faults of a piece of work (a dump, a transfer, a restore, a preflight, an arrival) wait for the
// next such piece and strike there; all others strike at their moment.
bool StrikesWork(FaultKind kind);
// Whether a fault of this kind can strike in this phase at all.
bool CanStrike(FaultKind kind, core::Phase phase);

enum class Victim { kSource, kTarget, kStaying };

struct Fault {
  FaultKind kind{};
  core::Phase phase{};  // strikes when a migration enters this phase ...
  int migration = 1;    // ... that is the n-th of the job (from 1) ...
  Time after = 0;       // ... and so much later
  Victim victim{};
  Time duration = 0;
};

struct Scenario {
  std::uint64_t seed = 0;
  int slots = 2;
  int ranks_per_slot = 2;
  int spares = 2;
  bool share_node = false;   // the first two slots are on one node
  int moves = 1;             // orders of the operator, one after the other
  bool name_target = false;  // with --to, now and then
  bool last_move = false;    // one more order when all faults are over: it must succeed
  Time step = 300 * kMs;     // the application's, on average
  std::vector<Fault> faults;
};

Scenario MakeScenario(std::uint64_t seed);
std::string Describe(const Fault& fault);
std::string Describe(const Scenario& scenario);

}  // namespace xmpi::sim
