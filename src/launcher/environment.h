// The environment of a rank: of the launcher's own what the user chose and what makes sense on
// another host, then -genv, then -env. Process managers' variables never pass.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "launcher/options.h"

namespace xmpi::launcher {

std::map<std::string, std::string> RankEnvironment(const Options& options, const Segment& segment,
                                                   std::span<const Variable> ours,
                                                   const std::string& working_directory);

// What a rank takes from its node when it got no value from here.
std::vector<std::string> InheritedNames();

}  // namespace xmpi::launcher
