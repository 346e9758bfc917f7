#include "rank/quiesce_state.h"

#include "base/check.h"

namespace xmpi::rank {
namespace {

using rank_link::Kind;
using enum State;

struct Transition {
  State from;
  Kind kind;
  State next;
  Reaction reaction;
};

// A repeat of what is already known changes nothing; only a repeated notice is answered again,
// because its report may be what got lost.
constexpr Transition kTransitions[] = {
    {kRunning, Kind::kNotice, kNoticed, Reaction::kReport},

    {kNoticed, Kind::kNotice, kNoticed, Reaction::kReport},
    {kNoticed, Kind::kAgree, kAgreed, Reaction::kNone},
    {kNoticed, Kind::kCancel, kRunning, Reaction::kResume},

    {kAgreed, Kind::kNotice, kAgreed, Reaction::kReport},
    {kAgreed, Kind::kAgree, kAgreed, Reaction::kNone},
    {kAgreed, Kind::kCancel, kRunning, Reaction::kResume},

    {kArrived, Kind::kNotice, kArrived, Reaction::kReport},
    {kArrived, Kind::kAgree, kArrived, Reaction::kNone},
    {kArrived, Kind::kCheck, kChecking, Reaction::kNone},
    {kArrived, Kind::kCancel, kRunning, Reaction::kResume},

    {kRefused, Kind::kNotice, kRefused, Reaction::kReport},
    {kRefused, Kind::kAgree, kRefused, Reaction::kNone},
    {kRefused, Kind::kCancel, kRunning, Reaction::kResume},

    {kChecking, Kind::kCheck, kChecking, Reaction::kNone},
    {kChecking, Kind::kCancel, kWithdrawn, Reaction::kNone},

    {kWithdrawn, Kind::kCancel, kWithdrawn, Reaction::kNone},

    {kChecked, Kind::kCheck, kChecked, Reaction::kNone},
    {kChecked, Kind::kTeardown, kTearing, Reaction::kNone},
    {kChecked, Kind::kCancel, kRunning, Reaction::kResume},

    {kTearing, Kind::kTeardown, kTearing, Reaction::kNone},

    {kParked, Kind::kTeardown, kParked, Reaction::kNone},
    {kParked, Kind::kEnv, kParked, Reaction::kNone},
    {kParked, Kind::kContinue, kReopening, Reaction::kNone},
};

}  // namespace

const char* Name(State state) {
  switch (state) {
    case kRunning:
      return "running";
    case kNoticed:
      return "noticed";
    case kAgreed:
      return "agreed";
    case kArrived:
      return "arrived";
    case kRefused:
      return "refused";
    case kChecking:
      return "checking";
    case kWithdrawn:
      return "withdrawn";
    case kChecked:
      return "checked";
    case kTearing:
      return "tearing down";
    case kParked:
      return "parked";
    case kReopening:
      return "reopening";
  }
  return "?";
}

bool QuiesceState::AcceptsMigration(const rank_link::Message& message) const {
  // A notice starts a migration only if it is newer than any that this rank has ended.
  if (state_ == kRunning) return message.migration > migration_;
  return message.migration == migration_;
}

Reaction QuiesceState::On(const rank_link::Message& message, std::uint64_t passed) {
  for (const Transition& transition : kTransitions) {
    if (transition.from != state_ || transition.kind != message.kind) continue;
    if (!AcceptsMigration(message)) break;
    if (message.kind == Kind::kAgree) {
      if (state_ != kNoticed && message.stop_call != stop_call_) break;
      stop_call_ = message.stop_call;
    }
    if (state_ == kRunning) {
      migration_ = message.migration;
      reported_ = passed;
      stop_call_ = 0;
    }
    state_ = transition.next;
    return transition.reaction;
  }
  ++stale_;
  return Reaction::kStale;
}

Step QuiesceState::Next(std::uint64_t passed) const {
  switch (state_) {
    case kNoticed:
      // stop_call = max(reported) + 1, so it cannot be a call that our own report counted.
      return passed <= reported_ ? Step::kGoOn : Step::kWait;
    case kAgreed:
      if (passed < stop_call_) return Step::kGoOn;
      return passed == stop_call_ ? Step::kArrive : Step::kMissed;
    default:
      return Step::kGoOn;
  }
}

void QuiesceState::Arrive(bool refused) {
  XMPI_CHECK(state_ == kAgreed);
  state_ = refused ? kRefused : kArrived;
}

Reaction QuiesceState::EndCheck(bool refused) {
  XMPI_CHECK(state_ == kChecking || state_ == kWithdrawn);
  if (state_ == kWithdrawn) {
    state_ = kRunning;
    return Reaction::kResume;
  }
  state_ = refused ? kRefused : kChecked;
  return Reaction::kNone;
}

void QuiesceState::Park() {
  XMPI_CHECK(state_ == kTearing);
  state_ = kParked;
}

void QuiesceState::Reopened() {
  XMPI_CHECK(state_ == kReopening);
  state_ = kRunning;
}

}  // namespace xmpi::rank
