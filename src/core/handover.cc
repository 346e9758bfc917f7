// handover: one in-memory swap, no IO, cannot fail: from here on the slot belongs to the candidate,
// under the next epoch, and whatever the source still says is stale (paper 4.3 step 13). Until the
// commit point the way back is the same swap, under one more epoch.
#include <algorithm>
#include <format>

#include "base/check.h"
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

// The copies are lost before the first fence of the new generation has opened: nobody has talked to
// them yet. The stopped originals take the seat again and join the same fence. If they are lost as
// well, the images are what is left of the ranks.
void Coordinator::GiveBack(Move& move, const std::string& reason) {
  TakeSeatBack(move, reason);
  if (move.rescued) {
    StartStepTimer();
    return OnCandidateFailed(move, reason);
  }
  if (move.originals_lost || !proxies_.contains(move.source)) return OnOriginalsLost(move, reason);
  move.left = true;
  move.why_left = std::format("{} was lost before all had reconnected: {}", move.to, reason);
  Abandon(move);
  Send(move.slot, ContinueMessage());
  StartStepTimer();
}

// The target is a candidate again, which holds the images until the fence has opened.
void Coordinator::TakeSeatBack(Move& move, const std::string& reason) {
  DropFromFence(move.slot);
  SlotState& slot = slots_[move.slot];
  slot.node = move.from;
  slot.proxy = move.source;
  ++slot.epoch;
  const auto take_role = [&](const ProxyId& proxy, ProxyRole role) {
    if (const auto found = proxies_.find(proxy); found != proxies_.end()) found->second.role = role;
  };
  take_role(move.source, move.originals_lost ? ProxyRole::kFormer : ProxyRole::kSeat);
  take_role(move.candidate, ProxyRole::kCandidate);
  move.moved = move.restored = false;
  for (const MovedRank& rank : move.ranks) ranks_[rank.rank].pid = rank.pid_before;
  move.ranks.clear();
  for (const wire::RankSpec& rank : plan_.slots[move.slot].ranks)
    migration_->ranks[rank.rank()].running = false;
  Log("handover.undone", {{"migration", static_cast<std::int64_t>(migration_->id)},
                          {"slot", static_cast<std::int64_t>(move.slot)},
                          {"epoch", static_cast<std::int64_t>(slot.epoch)},
                          {"node", move.from},
                          {"reason", reason}});
}

// What a lost holder of the seat had put must not reach the others.
void Coordinator::DropFromFence(SlotId slot) {
  const Result<> dropped = hub_.DropSlot(slot, generation_ + 1);
  XMPI_CHECK(dropped.has_value());  // of the generation after the newest, none has opened
}

// Whoever has not joined the fence by now: copies are given up, others cannot be.
void Coordinator::OnReconnectLate() {
  std::vector<SlotId> absent = hub_.Absent();
  if (absent.empty()) {  // nobody is in it yet
    for (const Move& move : migration_->moves) absent.push_back(move.slot);
  }
  bool is_over = true;
  const std::string reason =
      std::format("{} did not end by its deadline: {}", Name(migration_->step), WhoIsMissing());
  for (const SlotId slot : absent) {
    if (!migration_) return;
    Move* move = MoveOf(slot);
    if (move == nullptr || migration_->fence_opened) continue;
    if (move->moved) {
      GiveBack(*move, reason);
    } else if (move->rescued) {
      StartStepTimer();
      TryElsewhere(*move, reason);
    } else {
      continue;
    }
    is_over = false;
  }
  if (is_over) Pull(Trigger::kDeadline);
}

}  // namespace xmpi::core
