#include "core/phase.h"

#include <algorithm>

namespace xmpi::core {
namespace {

using enum Step;
using enum Trigger;

constexpr Transition kTransitions[] = {
    {kTarget, kReady, kSource},
    {kTarget, kRetry, kTarget},
    {kTarget, kFailed, kStayed},
    {kSource, kReady, kNotice},
    {kSource, kRetry, kTarget},
    {kSource, kFailed, kStayed},
    {kNotice, kReady, kArrive},
    {kNotice, kFailed, kStayed},
    {kNotice, kDeadline, kStayed},
    {kArrive, kReady, kCheck},
    {kArrive, kFailed, kStayed},
    {kArrive, kDeadline, kStayed},
    {kCheck, kReady, kPark},
    {kCheck, kFailed, kStayed},
    // Somebody stands in a barrier that not all will enter: nobody can be called back from there.
    {kCheck, kDeadline, kBroken},
    {kPark, kReady, kDump},
    {kPark, kRetry, kReplace},
    {kPark, kFailed, kReturn},
    {kPark, kDeadline, kBroken},
    {kReplace, kReady, kDump},
    {kReplace, kRetry, kReplace},
    {kReplace, kFailed, kReturn},
    {kDump, kReady, kTransfer},
    {kDump, kRetry, kReplace},
    {kDump, kFailed, kReturn},
    {kTransfer, kReady, kRestore},
    {kTransfer, kRetry, kReplace},
    {kTransfer, kFailed, kReturn},
    {kRestore, kReady, kReconnect},
    {kRestore, kRetry, kReplace},
    {kRestore, kFailed, kReturn},
    {kReconnect, kReady, kMoved},
    {kReconnect, kReversed, kStayed},
    {kReconnect, kFailed, kBroken},
    {kReconnect, kDeadline, kBroken},
    {kReturn, kReady, kStayed},
    {kReturn, kReversed, kMoved},
    {kReturn, kFailed, kBroken},
    {kReturn, kDeadline, kBroken},
};

}  // namespace

std::span<const Transition> Transitions() { return kTransitions; }

std::optional<Step> Next(Step step, Trigger trigger) {
  const auto* found = std::ranges::find_if(kTransitions, [&](const Transition& transition) {
    return transition.step == step && transition.trigger == trigger;
  });
  if (found == std::end(kTransitions)) return std::nullopt;
  return found->next;
}

Phase PhaseOf(Step step) {
  switch (step) {
    case kTarget:
    case kSource:
      return Phase::kPrepare;
    case kNotice:
    case kArrive:
    case kCheck:
    case kPark:
    case kReplace:
      return Phase::kQuiesce;
    case kDump:
      return Phase::kDump;
    case kTransfer:
      return Phase::kTransfer;
    case kRestore:
      return Phase::kRestore;
    default:
      return Phase::kReconnect;
  }
}

bool IsEnd(Step step) { return step == kMoved || step == kStayed || step == kBroken; }

bool EndsOnlyTogether(Step step) { return step == kCheck || step == kPark; }

bool IsReopening(Step step) { return step == kReconnect || step == kReturn; }

bool StandsStill(Step step) { return step >= kCheck && !IsEnd(step); }

bool IsIrrevocable(Step step) { return !IsEnd(step) && step >= kPark; }

bool IsLateBySlot(Step step) { return step <= kSource || (step >= kReplace && step <= kRestore); }

std::string_view Name(Phase phase) {
  constexpr std::string_view kNames[] = {"prepare", "quiesce",  "dump",     "transfer",
                                         "restore", "handover", "reconnect"};
  return kNames[static_cast<int>(phase)];
}

std::string_view Name(Step step) {
  constexpr std::string_view kNames[] = {"target",    "source",  "notice", "arrive",   "check",
                                         "park",      "replace", "dump",   "transfer", "restore",
                                         "reconnect", "return",  "moved",  "stayed",   "broken"};
  return kNames[static_cast<int>(step)];
}

std::string_view Name(Trigger trigger) {
  constexpr std::string_view kNames[] = {"ready", "failed", "deadline", "retry", "reversed"};
  return kNames[static_cast<int>(trigger)];
}

}  // namespace xmpi::core
