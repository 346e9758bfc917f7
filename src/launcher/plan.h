// From what the user asked to what the coordinator works with: which slot sits on which host with
// which ranks, and each rank's environment. Pure: what is around the launcher comes as a value.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "core/job_plan.h"
#include "launcher/hosts.h"
#include "launcher/options.h"
#include "os/net.h"

namespace xmpi::launcher {

struct Surroundings {
  std::vector<Variable> environment{};
  std::string working_directory{};
  std::string hostname{};
  long pid = 0;
};

// `hosts` is what -hosts or the hostfile said; empty: all ranks on this host. Every entry is a
// slot. Ranks fill the slots in turn, each round with -ppn ranks a slot (else the host's count,
// else one), as mpiexec does. A segment with -host uses the slots of those hosts.
Result<core::JobPlan> MakePlan(const Options& options, const std::vector<Host>& hosts,
                               const Surroundings& around);

// What to tell the user when a host has more ranks than -port-range has ports: MPI would wait for
// one without a word. Empty: there are enough.
std::string PortShortage(const core::JobPlan& plan, os::PortRange range);

}  // namespace xmpi::launcher
