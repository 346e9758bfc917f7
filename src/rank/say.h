// What the rank library tells a person: lines on stderr that begin "xmpi: rank N: ", each written
// by one write(2) so that lines of many ranks do not mix. Trace lines appear under
// XMPI_DEBUG=trace only. TraceMessage is async-signal-safe; Say and Die are not.
#pragma once

#include "rank/quiesce_state.h"

namespace xmpi::rank {

// Words of XMPI_DEBUG, a comma-separated list read once by XMPI_Init.
struct Debug {
  bool trace = false;   // print every transition
  bool thread = false;  // check the calling thread in every XMPI_Quiesce, not only when noticed
};
extern Debug debug;
void ReadDebug();

void SetSayRank(int rank);

[[gnu::format(printf, 1, 2)]] void Say(const char* format, ...);
[[gnu::format(printf, 1, 2)]] void Trace(const char* format, ...);
void TraceMessage(const rank_link::Message& message, State from, State to, bool stale);

// Ends the job: says why, then MPI_Abort while a session is open, else exit code 1.
[[noreturn, gnu::format(printf, 1, 2)]] void Die(const char* format, ...);

}  // namespace xmpi::rank
