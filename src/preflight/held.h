// What a rank holds that no dump can carry, as findings. Pure; one table says of each kind why it
// matters and what would help.
#pragma once

#include <string>

#include "wire/preflight.pb.h"

namespace xmpi::preflight {

// `parked`: the rank's MPI session is finalized, so what may have been MPI's counts too.
void CheckHeld(const wire::RankFacts& rank, const std::string& node, bool parked,
               wire::Findings* findings);

}  // namespace xmpi::preflight
