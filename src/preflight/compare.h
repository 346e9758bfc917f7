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

// The paths of all programs and libraries, each once. Files that are open are asked for apart
// (proxy/held.h).
std::vector<std::string> PathsToAsk(const wire::SourceFacts& source);

wire::Findings Compare(const wire::SourceFacts& source, const wire::NodeFacts& target,
                       const Answers& answers);

// The part of it that needs no rank: whether the nodes match. For all nodes of a job beforehand.
wire::Findings CompareNodes(const wire::NodeFacts& source, const wire::NodeFacts& target,
                            std::string_view baseline);

// What is wrong with a node alone, whatever comes or goes.
wire::Findings CheckNode(const wire::NodeFacts& node);

// The part of it about what the ranks hold.
wire::Findings CheckHoldings(const wire::SourceFacts& source);

// A refusal for a rank; one finding for all ranks of which the same is to be said.
void RefuseRank(wire::Findings* findings, const std::string& node, std::uint32_t rank,
                std::string what, std::string why, std::string remedy);

bool Refuses(const wire::Findings& findings);
// One finding in a sentence; the refusals in one paragraph.
std::string Sentence(const wire::Finding& finding);
std::string Refusals(const wire::Findings& findings);

}  // namespace xmpi::preflight
