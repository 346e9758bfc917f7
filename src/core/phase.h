// The seven phases of a migration and the finer steps a coordinator walks through them.
// Transitions are a table {step, trigger, next}; what is not in it is a logged error, never a
// silent ignore. docs/architecture.md shows the same table; a test compares the two.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

namespace xmpi::core {

enum class Phase { kPrepare, kQuiesce, kDump, kTransfer, kRestore, kHandover, kReconnect };
inline constexpr int kPhases = 7;

// Where a migration stands. Each step waits for one thing from everybody it concerns.
enum class Step {
  kTarget,     // prepare: a candidate runs on the target and its preflight passed
  kSource,     // prepare: the source is connected to the candidate and its preflight passed
  kNotice,     // quiesce: every rank has reported its count of passed calls
  kArrive,     // quiesce: every rank stands at stop_call and agrees
  kCheck,      // quiesce: the barrier is done and no message is left unmatched
  kPark,       // quiesce: every rank has torn down and waits on its control socket
  kReplace,    // quiesce: all are parked; a slot's lost or leaving target is being replaced
  kDump,       // every rank of the moving slots has an image
  kTransfer,   // the candidates hold every image, verified, and the source's output is drained
  kRestore,    // every copy exists, still parked
  kReconnect,  // after handover: every rank runs again; the first fence is the commit point
  kReturn,     // after a failure behind kPark: every rank reopens in place
  kMoved,      // end: the slots sit on their targets
  kStayed,     // end: nothing moved, the job goes on where it was
  kBroken,     // end: the job cannot go on
};

enum class Trigger {
  kReady,     // all that the step waits for has come
  kFailed,    // something the step needs failed, was refused or was cancelled
  kDeadline,  // it did not come in time
  kRetry,     // a slot needs another target, and there is one
  kReversed,  // it came out the other way: every slot was given back, or one had to move after all
};

struct Transition {
  Step step;
  Trigger trigger;
  Step next;
};

std::span<const Transition> Transitions();
std::optional<Step> Next(Step step, Trigger trigger);
Phase PhaseOf(Step step);  // of an end: the last phase it can follow
bool IsEnd(Step step);
// Each rank is inside something collective: a failure waits until all are out of it.
bool EndsOnlyTogether(Step step);
// Everybody has been continued, here or there.
bool IsReopening(Step step);
// Every rank stands in the call at which all stop: none can end well before all have reopened.
bool StandsStill(Step step);
// Teardown has been ordered: from here on a failure cannot simply be called off.
bool IsIrrevocable(Step step);
// The deadline strikes each late slot, not the step: it tries elsewhere or stays where it is.
bool IsLateBySlot(Step step);

std::string_view Name(Phase phase);
std::string_view Name(Step step);
std::string_view Name(Trigger trigger);

}  // namespace xmpi::core
