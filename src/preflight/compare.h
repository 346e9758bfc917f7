// What the facts about a source, its ranks and a target mean for a move: findings, each with what,
// where, why it matters and what would help. Pure. Differences that no rank can notice are no
// findings; what may go wrong but need not is a warning; what will is a refusal.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "wire/preflight.pb.h"

namespace xmpi::preflight {

// What the target found at the paths that it was asked about.
using Answers = std::map<std::string, wire::FileFacts>;

// Every path whose state on the target counts, each once.
std::vector<std::string> PathsToAsk(const wire::SourceFacts& source);

struct Policy {
  // Files of the source's own disk that a rank has open, or mapped as data, travel with it; whether
  // the target can take them is asked apart from this (proxy/held.h).
  bool carry_files = false;
};

wire::Findings Compare(const wire::SourceFacts& source, const wire::NodeFacts& target,
                       const Answers& answers, const Policy& policy);

// The part of it that needs no rank: whether the nodes match. For all nodes of a job beforehand.
wire::Findings CompareNodes(const wire::NodeFacts& source, const wire::NodeFacts& target,
                            std::string_view baseline);

// What is wrong with a node alone, whatever comes or goes.
wire::Findings CheckNode(const wire::NodeFacts& node);

// What ranks with no session must not hold any more: network connections, MPI's shared memory.
wire::Findings CheckParked(const wire::SourceFacts& source);

bool Refuses(const wire::Findings& findings);
// One finding in a sentence; the refusals in one paragraph.
std::string Sentence(const wire::Finding& finding);
std::string Refusals(const wire::Findings& findings);

}  // namespace xmpi::preflight
