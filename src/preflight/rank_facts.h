// Facts about one rank: what its processes have open and mapped and no image carries, and the code
// that they run. Files that it has open are asked for apart (proxy/held.h). Looks at /proc of this
// node; stops and changes nothing, so a rank that is busy may change behind its back. PIDs are this
// node's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "preflight/closing_sockets.h"
#include "wire/preflight.pb.h"

namespace xmpi::preflight {

struct RankToLookAt {
  std::uint32_t rank = 0;
  // All of its processes, the root first.
  std::vector<pid_t> pids = {};
  // The sockets and pipes that it shares with its proxy; they are given anew on the target.
  std::set<std::uint64_t> ties = {};
  // Those that will be gone when the ranks are parked; nullptr: the ranks are, and nothing is
  // MPI's.
  const ClosingSockets* closing = nullptr;
};

// Everything: its memory, programs and libraries, what it holds.
wire::RankFacts LookAtRank(const RankToLookAt& rank);

// Only what it holds: for the moment before the dump, when every microsecond is downtime.
wire::RankFacts LookAtHoldings(const RankToLookAt& rank);

// A file in /dev/shm that an MPI library makes, by its name.
bool IsMpisSharedMemory(std::string_view path);

}  // namespace xmpi::preflight
