// dump, transfer, restore: images of the moving slots' ranks go from source to candidate and come
// to life there, parked, while the originals stay stopped (paper 4.3 steps 10, 11 and 14). Each
// slot goes its own way: a slot whose images are held is restored while another is still being
// dumped.
#include <format>

#include "core/coordinator.h"

namespace xmpi::core {

void Coordinator::EnterDump() {
  for (Move& move : migration_->moves) {
    if (!move.left && !move.dump_ordered) SendDump(move);
  }
}

void Coordinator::SendDump(Move& move) {
  move.dump_ordered = true;
  wire::Envelope envelope;
  wire::Dump& dump = *envelope.mutable_dump();
  dump.set_candidate_attempt(move.candidate.attempt);
  dump.set_timeout_ms(static_cast<std::uint64_t>(plan_.timeouts.dump.count()));
  if (move.giver == move.source) {
    move.input_held = true;
    actions_.push_back(FeedInput{.slot = move.slot, .hold = true});
    actions_.push_back(DrainOutput{move.source});
  } else {
    dump.set_held(true);
  }
  SendGiver(move, std::move(envelope));
}

void Coordinator::OnDumped(Move& move, const wire::Dumped& dumped) {
  if (!dumped.error().empty())
    return LeaveGroup(move,
                      std::format("{} could not be dumped: {}", Place(move.slot), dumped.error()));
  move.dumped = true;
  if (move.giver == move.source) move.images.assign(dumped.images().begin(), dumped.images().end());
  Advance();
  if (migration_) RestoreTheReady();
}

void Coordinator::OnImagesHeld(Move& move, const wire::ImagesHeld& held) {
  if (!held.error().empty())
    return OnCandidateFailed(move, std::format("the images of slot {} did not reach {}: {}",
                                               move.slot, move.to, held.error()));
  move.held = true;
  move.wire_bytes = held.wire_bytes();
  if (move.images.empty()) move.images.assign(held.images().begin(), held.images().end());
  // The source is lost before it could say so itself.
  if (move.originals_lost && !proxies_.contains(move.giver) && !move.images.empty())
    move.dumped = true;
  if (move.rescued) return PushRescue(move);
  Advance();
  if (migration_) RestoreTheReady();
}

void Coordinator::OnEvent(const OutputDrained& drained) {
  if (!migration_) return;
  for (Move& move : migration_->moves) {
    if (move.source == drained.proxy) move.drained = true;
  }
  Advance();
  if (migration_) RestoreTheReady();
}

void Coordinator::EnterRestore() {
  for (Move& move : migration_->moves) {
    if (!move.left && !move.restore_ordered) SendRestore(move);
  }
}

// In a group one slot need not wait for the others' images.
void Coordinator::RestoreTheReady() {
  if (migration_->step != Step::kDump && migration_->step != Step::kTransfer) return;
  for (Move& move : migration_->moves) {
    const bool ready = move.dumped && move.held && move.drained;
    if (!move.left && ready && !move.restore_ordered) SendRestore(move);
  }
}

void Coordinator::SendRestore(Move& move) {
  move.restore_ordered = true;
  wire::Envelope envelope;
  wire::Restore& restore = *envelope.mutable_restore();
  for (const wire::RankImage& image : move.images) *restore.add_images() = image;
  restore.set_timeout_ms(static_cast<std::uint64_t>(plan_.timeouts.restore.count()));
  SendCandidate(move.candidate, std::move(envelope));
}

void Coordinator::OnRestored(Move& move, const wire::Restored& restored) {
  if (!restored.error().empty())
    return OnCandidateFailed(move, std::format("slot {} could not be restored on {}: {}", move.slot,
                                               move.to, restored.error()));
  if (move.restored) return;
  move.restored = true;
  for (const wire::RankPlace& place : restored.places()) {
    if (KnownRank(move.slot, place.rank()))
      move.ranks.push_back({place.rank(), ranks_[place.rank()].pid, place.pid()});
  }
  if (move.rescued) return PushRescue(move);
  Advance();
}

}  // namespace xmpi::core
