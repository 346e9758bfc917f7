// One migration as the coordinator sees it: which slots move from where to where, what each has
// reported, and when each phase began. Plain state; the coordinator changes it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "core/action.h"
#include "core/phase.h"

namespace xmpi::core {

struct Move {  // one slot's part
  SlotId slot = 0;
  ProxyId source{};
  ProxyId candidate{};
  std::string from{};
  std::string to{};
  std::vector<std::string> tried{};  // targets that failed
  bool target_ready = false;
  bool source_ready = false;
  bool dumped = false;
  bool held = false;
  bool drained = false;
  bool restored = false;
  std::vector<wire::RankImage> images{};
  std::vector<MovedRank> ranks{};
};

struct RankProgress {
  bool noticed = false;
  bool arrived = false;
  bool checked = false;
  bool parked = false;
  bool running = false;
  std::uint64_t passed = 0;
  std::string refusal{};
};

struct Migration {
  MigrationId id = 0;
  Step step = Step::kTarget;
  Phase last_phase = Phase::kPrepare;  // where it was when it ended
  std::vector<Move> moves{};
  std::vector<RankProgress> ranks{};   // index = RankId
  std::vector<RequestId> requests{};   // operators who wait for the end
  std::string wanted_target{};         // --to, else empty
  std::string failure{};               // first thing that went wrong
  std::uint64_t stop_call = 0;
  std::uint32_t generation = 0;      // of the KVS that reconnect opens
  bool fence_opened = false;         // the commit point is behind us
  std::array<std::int64_t, kPhases> phase_began_us{};
  std::array<std::int64_t, kPhases> phase_ended_us{};
  std::int64_t first_arrival_us = 0;
  std::int64_t last_running_us = 0;
};

// The summary that an operator and the event log get.
MigrationResult Summarize(const Migration& migration);

}  // namespace xmpi::core
