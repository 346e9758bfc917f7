// QuiesceState is where one rank stands in a quiesce (docs/architecture.md, "The seven phases"):
// the proxy's messages and the rank's own steps go in, what to report comes out. Pure values: no
// socket, no MPI, no allocation, so the signal handler and the safe point's slow path share one
// object (both run on the same thread, the slow path with the signal blocked). It never drops a
// message silently: what its table does not hold is counted in stale().
#pragma once

#include <cstdint>

#include "wire/rank_link.h"

namespace xmpi::rank {

enum class State : std::uint8_t {
  kRunning,    // no notice is pending
  kNoticed,    // noticed, stop_call not known yet
  kAgreed,     // stop_call known, not reached
  kArrived,    // stopped at stop_call
  kRefused,    // arrived or checked with a refusal: only a cancel helps
  kChecking,   // in the barrier, then looking for unmatched messages
  kWithdrawn,  // cancelled inside the barrier, which must still be ended: everybody is in it
  kChecked,    // clear, waiting for the word to tear down
  kTearing,    // irrevocable from here
  kParked,     // session finalized
  kReopening,  // told to go on
};

const char* Name(State state);

// What the rank has to tell its proxy because of a message.
enum class Reaction : std::uint8_t {
  kNone,
  kReport,  // noticed{migration, passed}
  kResume,  // resumed{migration, passed}
  kStale,   // not in the table, or of another migration: counted, nothing done
};

// What a call of XMPI_Quiesce has to do, given its number.
enum class Step : std::uint8_t {
  kGoOn,    // leave the call
  kWait,    // stop_call is not known yet and may be this call
  kArrive,  // this is stop_call
  kMissed,  // stop_call lies behind us: the rank cannot stop with the others
};

class QuiesceState {
 public:
  // `passed` is the number of calls entered so far.
  Reaction On(const rank_link::Message& message, std::uint64_t passed);

  Step Next(std::uint64_t passed) const;

  // The rank's own steps, each legal in one state only (checked).
  void Arrive(bool refused);  // kAgreed -> kArrived | kRefused
  // kChecking -> kChecked | kRefused. From kWithdrawn -> kRunning: then kResume is returned.
  Reaction EndCheck(bool refused);
  void Park();      // kTearing -> kParked
  void Reopened();  // kReopening -> kRunning

  State state() const { return state_; }
  bool active() const { return state_ != State::kRunning; }
  MigrationId migration() const { return migration_; }  // the last one noticed
  std::uint64_t reported() const { return reported_; }
  std::uint64_t stop_call() const { return stop_call_; }
  std::uint64_t stale() const { return stale_; }
  void CountStale() { ++stale_; }

 private:
  bool AcceptsMigration(const rank_link::Message& message) const;

  State state_ = State::kRunning;
  MigrationId migration_ = 0;
  std::uint64_t reported_ = 0;   // calls counted in the report of migration_
  std::uint64_t stop_call_ = 0;  // 0: not known
  std::uint64_t stale_ = 0;
};

}  // namespace xmpi::rank
