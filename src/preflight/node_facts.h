// Facts about this node that decide whether ranks can come here or leave: kernel, CPU, memory room,
// privilege, clock. Reads /proc, /sys and the CPU; changes nothing. CRIU's part and the slot's are
// the caller's to fill in, since only they know.
#pragma once

#include <cstdint>
#include <string>

#include "wire/preflight.pb.h"

namespace xmpi::preflight {

// All but criu_version, criu_error, namespaces and lost. XMPI_CPU_WITHOUT, flags of /proc/cpuinfo
// between commas, hides these from the result: for tests of machines that do not match.
wire::NodeFacts LookAtNode(const std::string& node, const std::string& version);

wire::CpuFacts LookAtCpu();

struct Room {
  std::uint64_t bytes = 0;
  std::string bound;  // by what: "the machine", or the file of a cgroup
};
// What this process and its children may still take.
Room MemoryRoom();

}  // namespace xmpi::preflight
