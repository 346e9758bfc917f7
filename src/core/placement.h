// Where a slot goes. Pure: the nodes in use, the spares and what was already tried decide.
#pragma once

#include <span>
#include <string>

#include "base/error.h"

namespace xmpi::core {

struct PlacementQuestion {
  std::string from{};                         // the node that is to be left
  std::string wanted{};                       // an operator's --to; empty: choose
  std::span<const std::string> spares;      // in order of preference
  std::span<const std::string> in_use;      // nodes that hold a slot or take one now
  std::span<const std::string> tried;       // targets that failed in this migration
};

// The node to try next. Errors: kRefused with what is missing and the remedy.
Result<std::string> ChooseTarget(const PlacementQuestion& question);

}  // namespace xmpi::core
