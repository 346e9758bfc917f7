// dump, transfer, restore: images of the moving slots' ranks go from source to candidate and come
// to life there, parked, while the originals stay stopped (paper 4.3 steps 10, 11 and 14).
#include <format>

#include "core/coordinator.h"

namespace xmpi::core {

void Coordinator::EnterDump() {
  for (const Move& move : migration_->moves) {
    actions_.push_back(FeedInput{.slot = move.slot, .hold = true});
    actions_.push_back(DrainOutput{move.source});
    wire::Envelope envelope;
    envelope.mutable_dump();
    Send(move.slot, std::move(envelope));
  }
}

void Coordinator::OnDumped(Move& move, const wire::Dumped& dumped) {
  if (!dumped.error().empty())
    return FailMigration(std::format("{} could not be dumped: {}", Place(move.slot), dumped.error()));
  move.dumped = true;
  move.images.assign(dumped.images().begin(), dumped.images().end());
  ReadyIf(migration_->step == Step::kDump && EveryMove(&Move::dumped));
}

void Coordinator::EnterTransfer() {
  ReadyIf(EveryMove(&Move::held) && EveryMove(&Move::drained));
}

void Coordinator::OnImagesHeld(Move& move, const wire::ImagesHeld& held) {
  if (!held.error().empty())
    return FailMigration(std::format("the images of slot {} did not reach {}: {}", move.slot, move.to,
                                     held.error()));
  move.held = true;
  ReadyIf(migration_->step == Step::kTransfer && EveryMove(&Move::held) &&
          EveryMove(&Move::drained));
}

void Coordinator::OnEvent(const OutputDrained& drained) {
  if (!migration_) return;
  for (Move& move : migration_->moves) {
    if (move.source == drained.proxy) move.drained = true;
  }
  ReadyIf(migration_->step == Step::kTransfer && EveryMove(&Move::held) &&
          EveryMove(&Move::drained));
}

void Coordinator::EnterRestore() {
  for (const Move& move : migration_->moves) {
    wire::Envelope envelope;
    wire::Restore& restore = *envelope.mutable_restore();
    for (const wire::RankImage& image : move.images) *restore.add_images() = image;
    SendCandidate(move, std::move(envelope));
  }
}

void Coordinator::OnRestored(Move& move, const wire::Restored& restored) {
  if (!restored.error().empty())
    return FailMigration(std::format("slot {} could not be restored on {}: {}", move.slot, move.to,
                                     restored.error()));
  if (move.restored) return;
  move.restored = true;
  for (const wire::RankPlace& place : restored.places()) {
    if (KnownRank(move.slot, place.rank()))
      move.ranks.push_back({place.rank(), ranks_[place.rank()].pid, place.pid()});
  }
  ReadyIf(migration_->step == Step::kRestore && EveryMove(&Move::restored));
}

}  // namespace xmpi::core
