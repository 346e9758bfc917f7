// reconnect: every rank reopens its session. The first fence of the new generation is the commit
// point: all copies have joined it, so the originals are no longer needed (paper 4.3 steps 12, 15
// and 16, with the originals kept until then). A return is the same thing in place.
#include "core/coordinator.h"

namespace xmpi::core {

wire::Envelope Coordinator::ContinueMessage() const {
  wire::Envelope envelope;
  envelope.mutable_continue_ranks()->set_process_mapping(plan_.process_mapping);
  return envelope;
}

void Coordinator::EnterReconnect() { SendAllSlots(ContinueMessage()); }

void Coordinator::OnFenceOpened(std::uint32_t generation) {
  if (!migration_ || !IsReopening(migration_->step) || migration_->fence_opened) return;
  migration_->fence_opened = true;
  Log("reconnect.commit", {{"migration", static_cast<std::int64_t>(migration_->id)},
                           {"generation", static_cast<std::int64_t>(generation)}});
  LetInputFlow();
  for (const Move& move : migration_->moves) {
    ReleaseHolders(move);
    if (!move.moved || !proxies_.contains(move.source)) continue;
    wire::Envelope envelope;
    envelope.mutable_release();
    SendFormer(move.source, std::move(envelope));
  }
}

void Coordinator::OnRunning(const wire::Running& running) {
  migration_->ranks[running.rank()].running = true;
  migration_->last_running_us = now_us_;
  Advance();
}

}  // namespace xmpi::core
