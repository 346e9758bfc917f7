// prepare: what can be known before anybody stops. Looks at this node and at the ranks on it and
// changes nothing; each refusal says what is in the way and what would help.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "criu/checkpointer.h"
#include "os/slot.h"
#include "preflight/closing_sockets.h"
#include "proxy/ranks.h"
#include "wire/control.pb.h"
#include "wire/preflight.pb.h"

namespace xmpi::proxy {

// Who looks, and with what tools.
struct Here {
  std::string node;
  std::string version;
  const os::Slot* slot = nullptr;
  Result<criu::Preflight> criu = {};
};
wire::NodeFacts LookAtNode(const Here& here);

// The source's side of the preflight: this node, and what its ranks are and hold for longer than a
// moment. Takes a while with many ranks, and may run in any thread while the slot lives.
using Living = std::map<RankId, Ranks::Process>;
wire::SourceFacts LookAtSource(const Here& here, const wire::Launch& launch, const Living& ranks,
                               const preflight::ClosingSockets& closing);

// The candidate's side: what those facts mean here.
Result<std::string> AnswerFacts(const Here& here, const std::string& facts);
// The source's again: an error with everything that refuses the move; warnings are logged.
Result<wire::Findings> ReadFindings(const std::string& text);
Result<> JudgeFindings(const wire::Findings& findings);

// Just before the dump: no rank holds a network connection or MPI's shared memory any more.
Result<> CheckParked(const Here& here, const Living& ranks);

std::uint64_t MemoryBytes();

}  // namespace xmpi::proxy
