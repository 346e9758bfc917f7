// The environment of the ranks on this node, and what of it must be said again when a rank wakes up
// on another node. Values only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "wire/bootstrap.h"
#include "wire/control.pb.h"

namespace xmpi::proxy {

// What a rank needs to know of this node whenever it opens a session: the network device and the
// ports that -iface and -port-range leave it. `device` is the interface's name, empty for any.
std::vector<wire::EnvironmentVariable> NodeEnvironment(std::string_view device,
                                                       std::string_view port_range);

struct RankEnvironment {
  const wire::Launch& launch;
  const wire::RankSpec& rank;
  std::string_view hostname;
  const std::vector<wire::EnvironmentVariable>& node;
  int local_rank = 0;  // index among the slot's ranks
};

// NAME=value: the rank's own variables, then those of launch.inherit_environment that this process
// has and the rank does not, then ours, which win over both.
std::vector<std::string> EnvironmentOf(const RankEnvironment& what);

}  // namespace xmpi::proxy
