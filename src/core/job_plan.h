// What a job is before it runs: who sits where with which ranks. Made by the launcher from its
// options, read by the coordinator; all values, no IO.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "core/timeouts.h"
#include "wire/control.pb.h"

namespace xmpi::core {

struct SlotPlan {
  std::string node{};
  std::vector<wire::RankSpec> ranks{};  // in rank order
};

struct JobPlan {
  std::string job{};                  // its name for people and for xmpictl
  std::vector<SlotPlan> slots{};      // index = SlotId
  std::vector<std::string> spares{};  // nodes that may take a slot, in order of preference
  std::int32_t universe_size = 0;
  std::string bind_to = "none";
  std::string process_mapping{};
  std::vector<std::string> inherit_environment{};
  Timeouts timeouts;
};

}  // namespace xmpi::core
