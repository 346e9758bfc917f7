// What ties a rank to its proxy: a control socket, a PMI socket and its standard streams, each a
// pair of ends. The proxy keeps one end of each; the rank gets the other under a number that stays
// the same for its whole life, on whatever node it is. Owns both ends until they are moved out.
#pragma once

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "criu/checkpointer.h"
#include "image/manifest.h"

namespace xmpi::proxy {

// Clear of the low numbers that scripts like to use, and within the 64 descriptors that a process
// has room for without asking.
inline constexpr int kPmiFd = 40;
inline constexpr int kControlFd = 41;

// The descriptor under which a rank finds its end.
int NumberInRank(image::TieKind kind);

struct TieEnds {
  image::TieKind kind{};
  Fd ours = {};             // non-blocking
  Fd theirs = {};           // blocking, as a program expects of its streams
  std::uint64_t inode = 0;  // of theirs
};

// A rank that takes no standard input has no tie for it: it reads /dev/null.
Result<std::vector<TieEnds>> MakeTies(bool takes_stdin);

// As a dump wants to hear of them.
std::vector<criu::Tie> ForDump(const std::vector<TieEnds>& ties);

}  // namespace xmpi::proxy
