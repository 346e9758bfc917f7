// handover: one in-memory swap, no IO, cannot fail: from here on the slot belongs to the candidate,
// under the next epoch, and whatever the source still says is stale (paper 4.3 step 13).
#include "core/coordinator.h"

namespace xmpi::core {

void Coordinator::HandOver() {
  migration_->phase_began_us[static_cast<int>(Phase::kHandover)] = now_us_;
  migration_->phase_ended_us[static_cast<int>(Phase::kHandover)] = now_us_;
  for (const Move& move : migration_->moves) {
    SlotState& slot = slots_[move.slot];
    slot.node = move.to;
    slot.proxy = move.candidate;
    ++slot.epoch;
    proxies_[move.candidate].role = ProxyRole::kSeat;
    if (const auto source = proxies_.find(move.source); source != proxies_.end())
      source->second.role = ProxyRole::kFormer;
    for (const MovedRank& rank : move.ranks) ranks_[rank.rank].pid = rank.pid_after;
    Log("handover.done", {{"migration", static_cast<std::int64_t>(migration_->id)},
                          {"slot", static_cast<std::int64_t>(move.slot)},
                          {"epoch", static_cast<std::int64_t>(slot.epoch)},
                          {"from", move.from},
                          {"to", move.to}});
  }
}

}  // namespace xmpi::core
