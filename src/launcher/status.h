// The job as xmpictl and scripts see it: the coordinator's state and a migration's result as JSON.
// The field names are an interface: docs and tests of others go by them. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "core/action.h"
#include "core/coordinator.h"

namespace xmpi::launcher {

// job, stage, ranks, slots[{slot, node, epoch, ranks[{rank, pid, ...}]}], spares, migrations,
// migration (the one going on, else null).
nlohmann::ordered_json StatusJson(const core::Coordinator& coordinator);

// ok, reason, migration, slot, from, to, stop_call, phases_ms{prepare ... reconnect}, downtime_ms,
// move_ms, image_bytes, precopy_bytes, wire_bytes, ranks[{rank, pid_before, pid_after}].
nlohmann::ordered_json ResultJson(const core::MigrationResult& result);

}  // namespace xmpi::launcher
