// Facts about one rank: what its processes have open and mapped, sorted by what that means to a
// move. Looks at /proc of this node; stops and changes nothing, so a rank that is busy may change
// behind its back. PIDs are this node's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <vector>

#include "wire/preflight.pb.h"

namespace xmpi::preflight {

struct RankToLookAt {
  std::uint32_t rank = 0;
  // All of its processes, the root first.
  std::vector<pid_t> pids = {};
  // The sockets and pipes that it shares with its proxy; they are given anew on the target.
  std::set<std::uint64_t> ties = {};
  // Deleted but open files up to this size travel in the image.
  std::uint64_t ghost_limit_bytes = 0;
};

// Everything: program, folder, memory, mapped and open files, what it holds.
wire::RankFacts LookAtRank(const RankToLookAt& rank);

// Only what it holds: for the moment before the dump, when every microsecond is downtime.
wire::RankFacts LookAtHoldings(const RankToLookAt& rank);

// One line of /proc/PID/maps.
struct Mapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t inode = 0;
  std::string path;  // without " (deleted)"
  bool deleted = false;
  bool executable = false;
};
std::vector<Mapping> ParseMaps(const std::string& text);

}  // namespace xmpi::preflight
