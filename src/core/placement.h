// Where a slot goes. Pure: the seats taken, the spares and what was already tried decide.
#pragma once

#include <span>
#include <string>

#include "base/error.h"

namespace xmpi::core {

struct PlacementQuestion {
  std::string from{};                   // the node that is to be left
  std::string wanted{};                 // an operator's --to; empty: choose
  std::span<const std::string> spares;  // in order of preference
  std::span<const std::string> seats;   // the node of each slot, and of each that takes one now
  std::span<const std::string> avoid;   // targets that failed, nodes that are to be left too
};

// The node to try next: the spare with the fewest seats, the first of equals. Errors: kRefused with
// what is missing and the remedy.
Result<std::string> ChooseTarget(const PlacementQuestion& question);

}  // namespace xmpi::core
