// Starts the ranks of a slot: all of them or none.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "os/slot.h"
#include "proxy/ranks.h"
#include "wire/control.pb.h"

namespace xmpi::proxy {

struct NodeFacts {
  std::string node;      // the name by which the launcher knows this host
  std::string hostname;  // what the host calls itself
  std::vector<wire::EnvironmentVariable> environment;
};

// `done` gets the places of all ranks, which are in `ranks` by then; or the first failure, which
// names node, rank and program, with nothing left running.
using StartDone = std::function<void(Result<std::vector<wire::RankPlace>>)>;
void StartRanks(const wire::Launch& launch, const NodeFacts& node, os::Slot* slot, Ranks* ranks,
                StartDone done);

}  // namespace xmpi::proxy
