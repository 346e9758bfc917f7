// Which numbers a rank needs are not free on this node: without a PID namespace of its slot's own
// it comes back under the PIDs, threads, process groups and sessions that it has, among all others.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "wire/preflight.pb.h"

namespace xmpi::preflight {

// Of `numbers` those in use, each with whose it is, as far as we may see it. A moment later others
// may be.
std::vector<wire::PidInUse> PidsInUse(std::span<const std::uint32_t> numbers);

// "4711 is that of sleep", "4711 is a thread of PID 4700, java".
std::string Describe(const wire::PidInUse& use);

}  // namespace xmpi::preflight
