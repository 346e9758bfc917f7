// The numbers by which everything in a job is named, with the meaning docs/architecture.md gives
// them.
#pragma once

#include <compare>
#include <cstdint>
#include <format>
#include <string>

namespace xmpi {

using SlotId = std::uint32_t;  // a seat in the job, 0..slots-1; stable for the job's life
using RankId = std::uint32_t;  // rank in XMPI_COMM_WORLD, 0..size-1; stable
using Epoch = std::uint32_t;   // of a slot: +1 whenever another proxy takes the seat; starts at 1
using MigrationId = std::uint32_t;  // numbered per job from 1; 0 = none
using AttemptId = std::uint32_t;    // numbered per migration and slot from 1; 0 = the job's start
using Generation = std::uint32_t;   // of the KVS: the number of a rank's cmd=init, from 1

// Names one proxy process for ever: the slot it was started for and the try that started it.
// {slot, 0, 0} is the proxy that the job started with; any other was once a candidate.
struct ProxyId {
  SlotId slot = 0;
  MigrationId migration = 0;
  AttemptId attempt = 0;
  auto operator<=>(const ProxyId&) const = default;
};

inline std::string ToString(const ProxyId& id) {
  return std::format("{}.{}.{}", id.slot, id.migration, id.attempt);
}

}  // namespace xmpi
