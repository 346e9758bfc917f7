// What of a CPU the code of a rank may have chosen to use. Pure: comparisons. The names are those
// of /proc/cpuinfo.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "wire/preflight.pb.h"

namespace xmpi::preflight {

// The user-visible instruction set extensions among `flags`: a program that finds one may use it
// and will die of SIGILL where it is missing. Hints that do nothing where they are unknown, what
// only the kernel can use, and what only tells how fast something is, are not among them.
std::vector<std::string> UsableExtensions(const wire::CpuFacts& cpu);
std::vector<std::string> AllExtensions();

// What `source` has and `target` lacks, leaving out what code built for `baseline` does not use
// (empty: nothing is left out).
std::vector<std::string> MissingExtensions(const wire::CpuFacts& source,
                                           const wire::CpuFacts& target, std::string_view baseline);

// The state components that are enabled on the source only, in words ("AVX-512"), leaving out those
// that no code of the baseline touches.
std::vector<std::string> MissingState(const wire::CpuFacts& source, const wire::CpuFacts& target,
                                      std::string_view baseline);

}  // namespace xmpi::preflight
