// handover: one in-memory swap, no IO, cannot fail: from here on the slot belongs to the candidate,
// under the next epoch, and whatever the source still says is stale (paper 4.3 step 13). Until the
// commit point the way back is the same swap, under one more epoch.
#include <algorithm>
#include <format>

#include "core/coordinator.h"

namespace xmpi::core {

void Coordinator::HandOver() {
  migration_->phase_began_us[static_cast<int>(Phase::kHandover)] = now_us_;
  migration_->phase_ended_us[static_cast<int>(Phase::kHandover)] = now_us_;
  for (Move& move : migration_->moves) {
    if (!move.left) HandOverOne(move);
  }
}

void Coordinator::HandOverOne(Move& move) {
  SlotState& slot = slots_[move.slot];
  slot.node = move.to;
  slot.proxy = move.candidate;
  ++slot.epoch;
  move.moved = true;
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

// The target is lost before the first fence of the new generation has opened: nobody has talked to
// the copies yet. The stopped originals take the seat again and join the same fence.
void Coordinator::GiveBack(Move& move, const std::string& reason) {
  const auto source = proxies_.find(move.source);
  const Result<> dropped = hub_.DropSlot(move.slot, generation_ + 1);
  if (move.originals_lost || source == proxies_.end() || !dropped)
    return BeginEnd(1,
                    std::format("slot {} on {} is lost in reconnect ({}), and with it rank {}: its "
                                "originals are gone; the job ends",
                                move.slot, move.to, reason, RanksOf(move.slot)));
  if (const auto target = proxies_.find(move.candidate); target != proxies_.end()) {
    wire::Envelope envelope;
    envelope.mutable_release();
    SendFormer(move.candidate, std::move(envelope));
    target->second.role = ProxyRole::kFormer;
  }
  SlotState& slot = slots_[move.slot];
  slot.node = move.from;
  slot.proxy = move.source;
  ++slot.epoch;
  source->second.role = ProxyRole::kSeat;
  move.left = true;
  move.moved = false;
  move.why_left = std::format("{} was lost before all had reconnected: {}", move.to, reason);
  for (const MovedRank& rank : move.ranks) ranks_[rank.rank].pid = rank.pid_before;
  for (const wire::RankSpec& rank : plan_.slots[move.slot].ranks)
    migration_->ranks[rank.rank()].running = false;
  Log("handover.undone", {{"migration", static_cast<std::int64_t>(migration_->id)},
                          {"slot", static_cast<std::int64_t>(move.slot)},
                          {"epoch", static_cast<std::int64_t>(slot.epoch)},
                          {"node", move.from},
                          {"reason", reason}});
  Abandon(move);
  Send(move.slot, ContinueMessage());
  StartStepTimer();
}

// Whoever has not joined the fence by now: copies are given up, others cannot be.
void Coordinator::OnReconnectLate() {
  std::vector<SlotId> absent = hub_.Absent();
  if (absent.empty()) {  // nobody is in it yet
    for (const Move& move : migration_->moves) absent.push_back(move.slot);
  }
  bool given_back = false;
  const std::string reason =
      std::format("reconnect did not end by its deadline: {}", WhoIsMissing());
  for (const SlotId slot : absent) {
    if (!migration_) return;
    Move* move = UncommittedMoveOf(slot);
    if (move == nullptr) continue;
    GiveBack(*move, reason);
    given_back = true;
  }
  if (!given_back) Pull(Trigger::kDeadline);
}

}  // namespace xmpi::core
