#include "core/migration.h"

namespace xmpi::core {

std::string_view StageOf(const wire::Progress& progress) {
  return progress.stage() == wire::Progress::PRECOPY ? "pre-copy" : "transfer";
}

MigrationResult Summarize(const Migration& migration, std::string_view node) {
  MigrationResult result;
  result.migration = migration.id;
  result.ok = migration.step == Step::kMoved;
  result.reason = migration.failure;
  result.stop_call = migration.stop_call;
  bool named = false;
  for (const Move& move : migration.moves) {
    const bool moved = result.ok && move.moved;
    result.slots.push_back({move.slot, move.from, move.to, moved, move.why_left});
    for (const wire::RankImage& image : move.images) result.image_bytes += image.bytes();
    if (move.plan) result.precopy_bytes += move.plan->sent_bytes();
    result.wire_bytes += move.wire_bytes;
    if (moved) result.ranks.insert(result.ranks.end(), move.ranks.begin(), move.ranks.end());
    const bool concerns = move.from == node || node.empty();
    if (named || (!concerns && &move != &migration.moves.front())) continue;
    named = concerns;
    result.slot = move.slot;
    result.from = move.from;
    result.to = move.to;
    if (move.left) result.reason = move.why_left;
  }
  if (migration.step == Step::kStayed) result.reason += "; the job goes on in place";
  for (int phase = 0; phase < kPhases; ++phase) {
    if (migration.phase_ended_us[phase] != 0)
      result.phases_us[phase] = migration.phase_ended_us[phase] - migration.phase_began_us[phase];
  }
  if (migration.first_arrival_us != 0 && migration.last_running_us != 0)
    result.downtime_us = migration.last_running_us - migration.first_arrival_us;
  constexpr int kDumpIndex = static_cast<int>(Phase::kDump);
  constexpr int kRestoreIndex = static_cast<int>(Phase::kRestore);
  if (migration.phase_ended_us[kRestoreIndex] != 0)
    result.move_us = migration.phase_ended_us[kRestoreIndex] - migration.phase_began_us[kDumpIndex];
  return result;
}

}  // namespace xmpi::core
