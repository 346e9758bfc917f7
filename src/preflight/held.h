// What a rank holds that no dump can carry, as findings. Pure; one table says of each kind why it
// matters and what would help.
#pragma once

#include <string>

#include "wire/preflight.pb.h"

namespace xmpi::preflight {

// What may be MPI's is in nobody's way yet.
void CheckHeld(const wire::RankFacts& rank, const std::string& node, wire::Findings* findings);

// Takes out of `facts` what was not held `earlier`.
void KeepWhatLasts(const wire::SourceFacts& earlier, wire::SourceFacts* facts);

}  // namespace xmpi::preflight
