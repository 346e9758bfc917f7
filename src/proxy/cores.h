// Which cores the ranks of a slot are bound to. Another slot of this or of another job may be on
// the node, so what counts is which cores the node's processes are bound to now.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace xmpi::proxy {

using CpuList = std::vector<int>;  // as the system numbers them

// Bound processes per core, by index; a process counts for every core that it is bound to, and not
// at all if it may run on all of them.
std::vector<int> LoadOf(const std::vector<CpuList>& cores, const std::vector<CpuList>& bound);

// One core for each of `ranks`, the least loaded first, lower numbers first among equals; a core is
// given twice only when all have been given.
std::vector<CpuList> ChooseCores(const std::vector<CpuList>& cores, std::vector<int> load,
                                 std::size_t ranks);

// "0-3,8,10-11", as /proc writes it.
CpuList ParseCpuList(const char* text);

// Chosen cores, and a lock against other proxies of the node that choose: to be held until the
// ranks are bound.
struct CoreChoice {
  std::vector<CpuList> cpus;  // one for each rank; empty: not bound
  Fd lock;
};
// `bind_to` is "none" or "core".
Result<CoreChoice> ChooseCoresHere(const std::string& bind_to, std::size_t ranks);

}  // namespace xmpi::proxy
