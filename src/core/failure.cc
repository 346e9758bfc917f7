// What fails, and what becomes of it (the last column of the table of phases): a slot's candidate
// is replaced or the slot stays where it is; originals that are lost go on living in their images;
// a migration that cannot go on is called off, and everybody continues in place.
#include <algorithm>
#include <format>
#include <utility>

#include "core/coordinator.h"

namespace xmpi::core {
namespace {

// The ranks' images are being made, sent or restored.
bool IsMoving(Step step) { return step >= Step::kDump && step <= Step::kRestore; }

}  // namespace

Move* Coordinator::MoveOf(SlotId slot) {
  if (!migration_) return nullptr;
  for (Move& move : migration_->moves) {
    if (move.slot == slot && !move.left) return &move;
  }
  return nullptr;
}

// The slot's move if it is handed over, but its originals could still take over again.
Move* Coordinator::UncommittedMoveOf(SlotId slot) {
  const bool revocable = migration_ && IsReopening(migration_->step) && !migration_->fence_opened;
  Move* move = revocable ? MoveOf(slot) : nullptr;
  return move != nullptr && move->moved ? move : nullptr;
}

Move* Coordinator::FindMove(ProxyId Move::* who, const ProxyId& proxy) {
  if (!migration_) return nullptr;
  const auto found = std::ranges::find(migration_->moves, proxy, who);
  return found == migration_->moves.end() ? nullptr : &*found;
}

// The move that this proxy's ranks are the originals of, also if it has left the group.
Move* Coordinator::MoveFrom(const ProxyId& source) {
  Move* move = FindMove(&Move::source, source);
  return move != nullptr && !move->moved ? move : nullptr;
}

// The candidate is of no use any more. True if the slot still has what its next candidate needs.
bool Coordinator::RetireCandidate(Move& move) {
  const auto candidate = proxies_.find(move.candidate);
  const bool alive = candidate != proxies_.end();
  if (move.held && alive) {
    // Whether the originals are still there is not certain before they run.
    if (move.giver != move.source) DiscardProxy(move.giver);
    move.giver = move.candidate;
    candidate->second.role = ProxyRole::kGiver;
    return true;
  }
  DiscardCandidate(move);
  return proxies_.contains(move.giver) && (!move.originals_lost || move.giver != move.source);
}

// Another target for this slot; what the ranks are doing goes on meanwhile, up to kPark.
void Coordinator::TryElsewhere(Move& move, std::string reason) {
  Log("attempt.failed", {{"migration", static_cast<std::int64_t>(migration_->id)},
                         {"attempt", static_cast<std::int64_t>(move.candidate.attempt)},
                         {"target", move.to},
                         {"reason", reason}});
  const bool can_give = RetireCandidate(move);
  if (!can_give) return LeaveGroup(move, std::move(reason));
  const bool was_dumped = std::exchange(move.dump_ordered, false);
  if (was_dumped && move.giver == move.source) Abandon(move);
  move.target_ready = move.source_ready = move.dumped = move.held = false;
  move.restore_ordered = move.restored_again = move.restored = false;
  move.ranks.clear();
  if (move.giver == move.source) move.images.clear();
  move.tried.push_back(move.to);
  if (!PlaceMove(move, {}))
    return Reinstate(move) ? PushOn(move) : LeaveGroup(move, std::move(reason));
  ++move.candidate.attempt;
  StartCandidate(move);
  PushOn(move);
}

// The slot has another candidate: the group waits for it, unless it does not move with the group.
void Coordinator::PushOn(Move& move) {
  if (move.rescued) return PushRescue(move);
  const Step step = migration_->step;
  const bool goes_back =
      step <= Step::kSource || (step >= Step::kReplace && step <= Step::kRestore);
  if (goes_back) Pull(Trigger::kRetry);
}

// Nowhere else to go, and nothing else left of the ranks: whoever holds their images must do after
// all, once.
bool Coordinator::Reinstate(Move& move) {
  const auto giver = proxies_.find(move.giver);
  const bool holds = giver != proxies_.end() && giver->second.role == ProxyRole::kGiver;
  if (!move.originals_lost || !holds || std::exchange(move.reinstated, true)) return false;
  giver->second.role = ProxyRole::kCandidate;
  move.candidate = std::exchange(move.giver, move.source);
  move.to = giver->second.node;
  move.target_ready = move.source_ready = move.dump_ordered = move.dumped = move.held = true;
  return true;
}

// Lost, refused or late. From the dump on the originals go on in place rather than wait for
// another target, if they can.
void Coordinator::OnCandidateFailed(Move& move, std::string reason) {
  const bool only_kept = (move.left || IsReopening(migration_->step)) && !move.rescued;
  if (only_kept) {  // for its images; a copy that it has lost can be made from them again
    move.restored = false;
    move.ranks.clear();
    return;
  }
  if (!IsMoving(migration_->step) && !move.rescued) return TryElsewhere(move, std::move(reason));
  if (!move.originals_lost) return LeaveGroup(move, std::move(reason));
  const bool again = move.restore_ordered && !move.restored_again && move.held &&
                     proxies_.contains(move.candidate);
  if (!again) return TryElsewhere(move, std::move(reason));
  Log("restore.again", {{"slot", static_cast<std::int64_t>(move.slot)}, {"reason", reason}});
  move.restored_again = true;
  move.restored = false;
  move.ranks.clear();
  SendRestore(move);
}

// Whether the loss of the originals now need not be the loss of the ranks: complete images are
// held, or may be by the time we hear of them. Once the next fence has opened they are of the past.
bool Coordinator::SurvivesInImages(const Move& move) const {
  const Step step = migration_->step;
  if (step < Step::kReplace || migration_->fence_opened) return false;
  const auto is = [&](const ProxyId& proxy, ProxyRole role) {
    const auto found = proxies_.find(proxy);
    return found != proxies_.end() && found->second.role == role;
  };
  if (is(move.giver, ProxyRole::kGiver)) return true;
  const bool under_way = move.dump_ordered && step <= Step::kRestore && !move.left;
  return (move.held || under_way) && is(move.candidate, ProxyRole::kCandidate);
}

// A former candidate that had the images to send on.
void Coordinator::OnGiverLost(Move& move, const std::string& reason) {
  if (move.held || move.left || move.moved) return;
  if (IsReopening(migration_->step) && !move.rescued) return;
  if (SurvivesInImages(move)) return AskWhatIsHeld(move);
  LeaveGroup(move, std::format("the images of slot {} were lost: {}", move.slot, reason));
}

void Coordinator::OnOriginalsLost(Move& move, const std::string& reason) {
  const bool came_back = std::exchange(move.left, false);
  if (came_back) move.drained = true;
  if (!std::exchange(move.originals_lost, true))
    Log("originals.lost", {{"slot", static_cast<std::int64_t>(move.slot)}, {"reason", reason}});
  if (IsReopening(migration_->step)) return Rescue(move, reason);
  if (!proxies_.contains(move.source)) {
    move.drained = true;
    if (move.held && !move.images.empty()) move.dumped = true;
    if (move.giver == move.source && !move.held) AskWhatIsHeld(move);
  }
  Advance();
  if (migration_) RestoreTheReady();
}

// What was under way has reached the candidate or never will: nobody will dial it again.
void Coordinator::AskWhatIsHeld(const Move& move) {
  wire::Envelope envelope;
  envelope.mutable_source_lost();
  SendCandidate(move.candidate, std::move(envelope));
}

// Everybody was told to go on in place, or others have been handed over, and only now it turns out
// that these originals are gone. All others wait for them in the fence, so their images still
// count.
void Coordinator::Rescue(Move& move, const std::string& reason) {
  if (std::exchange(move.rescued, true)) return;  // its other ranks end one by one
  StartStepTimer();
  DropFromFence(move.slot);
  // What is left of the originals may still join the fence: it counts for nothing.
  if (const auto source = proxies_.find(move.source); source != proxies_.end())
    source->second.role = ProxyRole::kFormer;
  const auto candidate = proxies_.find(move.candidate);
  const bool here = candidate != proxies_.end() && candidate->second.role == ProxyRole::kCandidate;
  if (!here || !move.held) return TryElsewhere(move, reason);
  if (!move.restored) move.restore_ordered = false;
  PushRescue(move);
}

// The next step of a slot that is moved on its own.
void Coordinator::PushRescue(Move& move) {
  if (move.restored) {
    HandOverOne(move);
    return Send(move.slot, ContinueMessage());
  }
  if (move.held) {
    if (!move.restore_ordered) SendRestore(move);
  } else if (move.source_ready && !move.dump_ordered) {
    SendDump(move);
  }
}

// Images are kept until the ranks have gone on without them.
void Coordinator::ReleaseHolders(const Move& move) {
  DiscardCandidate(move);
  const auto giver = proxies_.find(move.giver);
  if (giver != proxies_.end() && giver->second.role == ProxyRole::kGiver) DiscardProxy(move.giver);
}

// The slot stays where it is while others go on; if there are no others, the migration is over.
void Coordinator::LeaveGroup(Move& move, std::string reason) {
  if (move.originals_lost) {
    return BeginEnd(
        1, std::format("slot {} of {} is lost in {}, and with it rank {}: there is no image "
                       "to restore from ({}); the job ends",
                       move.slot, move.from, Name(PhaseOf(migration_->step)), RanksOf(move.slot),
                       reason));
  }
  const bool alone = std::ranges::none_of(
      migration_->moves, [&](const Move& other) { return &other != &move && !other.left; });
  if (alone) return FailMigration(std::move(reason));
  Log("slot.stays", {{"migration", static_cast<std::int64_t>(migration_->id)},
                     {"slot", static_cast<std::int64_t>(move.slot)},
                     {"reason", reason}});
  if (!move.held) DiscardCandidate(move);
  Abandon(move);
  move.left = true;
  move.why_left = std::move(reason);
  Advance();
}

void Coordinator::FailMigration(std::string reason) {
  for (Move& move : migration_->moves) {
    if (!move.left && move.originals_lost) return LeaveGroup(move, std::move(reason));
  }
  if (migration_->failure.empty()) migration_->failure = std::move(reason);
  if (!EndsOnlyTogether(migration_->step)) Pull(Trigger::kFailed);
}

// Each slot that is not where the step wants it tries elsewhere, or stays.
void Coordinator::OnLate() {
  const Step step = migration_->step;
  const MigrationId id = migration_->id;
  const std::string who = WhoIsMissing();
  const std::string reason = std::format("{} did not end by its deadline: {}", Name(step), who);
  std::vector<SlotId> late;
  for (const Move& move : migration_->moves) {
    if (!move.left && IsLate(move)) late.push_back(move.slot);
  }
  for (const SlotId slot : late) {
    if (!migration_ || migration_->id != id) return;
    Move* move = MoveOf(slot);
    if (move == nullptr) continue;
    IsMoving(step) && !move->originals_lost ? LeaveGroup(*move, reason)
                                            : TryElsewhere(*move, reason);
  }
}

// The moves will not happen. Candidates go, but for those that hold whole images: whether the
// sources' ranks can really go on is known only when they have.
void Coordinator::AbandonMoves() {
  for (const Move& move : migration_->moves) {
    if (move.left) continue;
    if (!move.held) DiscardCandidate(move);
    Abandon(move);
  }
}

void Coordinator::Abandon(const Move& move) {
  wire::Envelope envelope;
  envelope.mutable_discard();
  Send(move.slot, std::move(envelope));
}

// Not before all have reconnected: input that a lost copy had taken would be lost with it.
void Coordinator::LetInputFlow() {
  for (Move& move : migration_->moves) {
    if (std::exchange(move.input_held, false))
      actions_.push_back(FeedInput{.slot = move.slot, .hold = false});
  }
}

void Coordinator::DiscardCandidate(const Move& move) {
  const auto found = proxies_.find(move.candidate);
  if (found != proxies_.end() && found->second.role == ProxyRole::kCandidate)
    DiscardProxy(move.candidate);
}

void Coordinator::DiscardProxy(const ProxyId& proxy) {
  const auto found = proxies_.find(proxy);
  if (found == proxies_.end()) return;
  wire::Envelope envelope;
  envelope.mutable_discard();
  SendFormer(proxy, std::move(envelope));
  found->second.role = ProxyRole::kFormer;
}

}  // namespace xmpi::core
