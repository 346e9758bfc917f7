// One migration as the coordinator sees it: which slots move from where to where, what each has
// reported, and when each phase began. Plain state; the coordinator changes it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "core/action.h"
#include "core/phase.h"

namespace xmpi::core {

struct Move {  // one slot's part
  SlotId slot = 0;
  ProxyId source{};     // its originals are here, until the commit point
  ProxyId candidate{};  // of the current attempt
  ProxyId giver{};      // who has the images to send: the source, or a candidate that held them
  std::string from{};
  std::string to{};
  std::string wanted{};              // --to, else empty
  std::vector<std::string> tried{};  // targets that failed
  bool target_ready = false;
  bool source_ready = false;
  bool dump_ordered = false;
  bool input_held = false;
  bool dumped = false;
  bool held = false;
  bool drained = false;
  bool restore_ordered = false;
  bool restored_again = false;  // one restore failed and was repeated
  bool restored = false;
  bool reinstated = false;      // a candidate that was given up was taken back
  bool originals_lost = false;  // the images are all there is
  bool rescued = false;         // ... and were found to be after the others had been continued
  bool moved = false;           // handed over, and not given back
  bool left = false;            // the group: the slot stays, or was given back
  std::string why_left{};
  std::vector<wire::RankImage> images{};
  std::vector<MovedRank> ranks{};
  std::optional<wire::Plan> plan{};          // from the pre-copy
  std::optional<wire::Progress> progress{};  // the newest
  std::uint64_t wire_bytes = 0;              // of the transfer
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

struct Request {  // an operator who waits for the end
  RequestId id = 0;
  std::string node{};  // that is to be left
};

struct Migration {
  MigrationId id = 0;
  Step step = Step::kTarget;
  Phase last_phase = Phase::kPrepare;  // where it was when it ended
  std::vector<Move> moves{};
  std::vector<RankProgress> ranks{};  // index = RankId
  std::vector<Request> requests{};
  std::string failure{};  // first thing that went wrong
  std::uint64_t stop_call = 0;
  std::uint32_t entries = 0;  // steps entered so far
  bool fence_opened = false;  // the commit point is behind us
  bool precopy = true;
  std::optional<std::int64_t> deadline_us{};  // the first node to be left is gone then
  std::array<std::int64_t, kPhases> phase_began_us{};
  std::array<std::int64_t, kPhases> phase_ended_us{};
  std::int64_t first_arrival_us = 0;
  std::int64_t last_running_us = 0;
};

// What a transfer is at, as the event log and `status` call it.
std::string_view StageOf(const wire::Progress& progress);

// The summary that the event log gets, and an operator who wanted `node` to be left.
MigrationResult Summarize(const Migration& migration, std::string_view node = "");

}  // namespace xmpi::core
