#include "launcher/status.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "core/phase.h"

namespace xmpi::launcher {
namespace {

using Json = nlohmann::ordered_json;

std::string Name(core::JobStage stage) {
  switch (stage) {
    case core::JobStage::kStarting:
      return "starting";
    case core::JobStage::kRunning:
      return "running";
    case core::JobStage::kEnding:
      return "ending";
    case core::JobStage::kEnded:
      break;
  }
  return "ended";
}

double Milliseconds(std::int64_t us) { return static_cast<double>(us) / 1000.0; }

Json RankJson(RankId rank, const core::RankState& state) {
  return {{"rank", rank},
          {"pid", state.pid},
          {"namespace_pid", state.namespace_pid},
          {"hello", state.hello},
          {"finalizing", state.finalizing},
          {"exited", state.exited}};
}

Json SlotJson(const core::Coordinator& coordinator, SlotId slot) {
  const core::SlotState& state = coordinator.slots()[slot];
  Json ranks = Json::array();
  for (const wire::RankSpec& spec : coordinator.plan().slots[slot].ranks)
    ranks.push_back(RankJson(spec.rank(), coordinator.ranks()[spec.rank()]));
  return {{"slot", slot},
          {"node", state.node},
          {"epoch", state.epoch},
          {"proxy", ToString(state.proxy)},
          {"ranks", ranks}};
}

Json ProgressJson(const wire::Progress& progress) {
  Json ranks = Json::array();
  for (const wire::Progress::Rank& rank : progress.ranks())
    ranks.push_back({{"rank", rank.rank()},
                     {"done_bytes", rank.done_bytes()},
                     {"total_bytes", rank.total_bytes()}});
  return {{"stage", std::string(core::StageOf(progress))},
          {"bytes_per_s", progress.bytes_per_s()},
          {"ranks", ranks}};
}

Json MigrationJson(const core::Migration& migration) {
  Json moves = Json::array();
  for (const core::Move& move : migration.moves) {
    moves.push_back(
        {{"slot", move.slot},
         {"from", move.from},
         {"to", move.to},
         {"attempt", move.candidate.attempt},
         {"predicted_ms",
          move.plan ? Json(Milliseconds(static_cast<std::int64_t>(move.plan->predicted_us())))
                    : Json()},
         {"progress", move.progress ? ProgressJson(*move.progress) : Json()}});
  }
  return {{"migration", migration.id},
          {"phase", std::string(core::Name(core::PhaseOf(migration.step)))},
          {"step", std::string(core::Name(migration.step))},
          {"moves", moves}};
}

// Those that hold no slot.
Json FreeSpares(const core::Coordinator& coordinator) {
  Json free = Json::array();
  for (const std::string& spare : coordinator.plan().spares)
    if (std::ranges::find(coordinator.slots(), spare, &core::SlotState::node) ==
        coordinator.slots().end())
      free.push_back(spare);
  return free;
}

}  // namespace

Json StatusJson(const core::Coordinator& coordinator) {
  Json slots = Json::array();
  for (SlotId slot = 0; slot < coordinator.slots().size(); ++slot)
    slots.push_back(SlotJson(coordinator, slot));
  const auto& migration = coordinator.migration();
  return {{"job", coordinator.plan().job},
          {"stage", Name(coordinator.stage())},
          {"ranks", coordinator.ranks().size()},
          {"slots", slots},
          {"spares", FreeSpares(coordinator)},
          {"migrations", coordinator.migrations()},
          {"migration", migration ? MigrationJson(*migration) : Json()}};
}

Json ResultJson(const core::MigrationResult& result) {
  Json phases;
  for (int phase = 0; phase < core::kPhases; ++phase)
    phases[std::string(core::Name(static_cast<core::Phase>(phase)))] =
        Milliseconds(result.phases_us[phase]);
  Json ranks = Json::array();
  for (const core::MovedRank& rank : result.ranks)
    ranks.push_back(
        {{"rank", rank.rank}, {"pid_before", rank.pid_before}, {"pid_after", rank.pid_after}});
  return {{"ok", result.ok},
          {"reason", result.reason},
          {"migration", result.migration},
          {"slot", result.slot},
          {"from", result.from},
          {"to", result.to},
          {"stop_call", result.stop_call},
          {"phases_ms", phases},
          {"downtime_ms", Milliseconds(result.downtime_us)},
          {"move_ms", Milliseconds(result.move_us)},
          {"image_bytes", result.image_bytes},
          {"precopy_bytes", result.precopy_bytes},
          {"wire_bytes", result.wire_bytes},
          {"ranks", ranks}};
}

}  // namespace xmpi::launcher
