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
#include "os/slot.h"
#include "proxy/ranks.h"
#include "wire/control.pb.h"

namespace xmpi::proxy {

// Whether this node has room for a slot's ranks at all: namespaces, their directories and programs.
Result<> CheckTarget(const wire::Launch& launch, const os::Slot& slot, const std::string& node);

// Whether the ranks hold something that no dump can carry. Only what is certain now is refused:
// MPI's own connections are closed by the time of the dump.
Result<> CheckSource(const std::map<RankId, Ranks::Process>& ranks, const os::Slot& slot);

// The program as execvp(3) finds it from `directory` with `path`, or why it does not.
Result<std::string> FindProgram(const std::string& program, const std::string& directory,
                                const std::string& path);

std::uint64_t MemoryBytes();

}  // namespace xmpi::proxy
