// prepare: the job runs on while a candidate proxy is started on a target, both sides run preflight
// and the image connection is opened (paper 4.3 steps 1 and 2).
#include <algorithm>
#include <format>

#include "core/coordinator.h"
#include "core/placement.h"

namespace xmpi::core {

void Coordinator::OnEvent(const EvacuateOrder& order) {
  const auto refuse = [&](std::string reason) {
    actions_.push_back(Answer{order.request, {.reason = std::move(reason), .from = order.node}});
  };
  if (stage_ == JobStage::kEnding) return refuse("the job is ending");
  if (migration_) {
    const bool leaves_already = std::ranges::any_of(
        migration_->moves, [&](const Move& move) { return move.from == order.node; });
    if (!leaves_already) {
      waiting_.push_back(order);
      return;
    }
    migration_->requests.push_back(order.request);
    actions_.push_back(Accepted{order.request, migration_->id});
    return;
  }
  if (stage_ == JobStage::kStarting) return refuse("the job has not started yet; try again");
  StartMigration(order);
}

void Coordinator::OnEvent(const CancelOrder& order) {
  if (!migration_) {
    actions_.push_back(Answer{order.request, {.reason = "no migration is going on"}});
    return;
  }
  const bool handed_over =
      migration_->step == Step::kReconnect || migration_->step == Step::kReturn;
  if (handed_over) {
    actions_.push_back(Answer{order.request,
                              {.migration = migration_->id,
                               .reason = std::format("too late to cancel: the migration is in {}",
                                                     Name(migration_->step))}});
    return;
  }
  actions_.push_back(Answer{order.request, {.migration = migration_->id, .ok = true}});
  FailMigration("cancelled by the operator");
}

std::string Coordinator::WhyNotMovable() const {
  for (RankId rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].exited) return std::format("{} has ended", PlaceOfRank(rank));
    if (ranks_[rank].finalizing)
      return std::format("{} has called XMPI_Finalize", PlaceOfRank(rank));
    if (!ranks_[rank].hello)
      return std::format("{} has not called XMPI_Init: the job is not movable", PlaceOfRank(rank));
  }
  return "";
}

void Coordinator::StartMigration(const EvacuateOrder& order) {
  Migration migration;
  migration.id = last_migration_ + 1;
  migration.wanted_target = order.to.value_or("");
  migration.requests.push_back(order.request);
  migration.ranks.resize(ranks_.size());
  for (SlotId slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].node != order.node) continue;
    migration.moves.push_back({.slot = slot, .source = slots_[slot].proxy, .candidate = {}, .from = order.node});
  }
  const auto refuse = [&](std::string reason) {
    Log("evacuate.refused", {{"node", order.node}, {"reason", reason}});
    actions_.push_back(
        Answer{order.request, {.reason = std::move(reason) + "; the job goes on in place", .from = order.node}});
  };
  if (migration.moves.empty()) {
    std::string nodes;
    for (const SlotState& slot : slots_) nodes += (nodes.empty() ? "" : ", ") + slot.node;
    return refuse(std::format("no rank of the job is on {}; it runs on {}", order.node, nodes));
  }
  if (std::string why = WhyNotMovable(); !why.empty()) return refuse(why);
  migration_ = std::move(migration);
  for (Move& move : migration_->moves) {
    if (PlaceMove(move)) continue;
    const std::string reason = migration_->failure;
    migration_.reset();
    return refuse(reason);
  }
  last_migration_ = migration_->id;
  Log("migration.begin", {{"migration", static_cast<std::int64_t>(migration_->id)},
                          {"from", order.node},
                          {"to", migration_->moves.front().to}});
  actions_.push_back(Accepted{order.request, migration_->id});
  Enter(Step::kTarget);
  for (const Move& move : migration_->moves) {
    proxies_[move.candidate] = {.role = ProxyRole::kCandidate, .node = move.to, .facts = {}};
    actions_.push_back(StartProxy{move.candidate, move.to});
  }
}

void Coordinator::StartNextMigration() {
  while (!waiting_.empty() && !migration_) {
    const EvacuateOrder order = std::move(waiting_.front());
    waiting_.pop_front();
    OnEvent(order);
  }
}

// Chooses the move's next target and numbers the attempt. False, with the failure said: none left.
bool Coordinator::PlaceMove(Move& move) {
  std::vector<std::string> in_use;
  for (const SlotState& slot : slots_) in_use.push_back(slot.node);
  for (const Move& other : migration_->moves) in_use.push_back(other.to);
  const auto target = ChooseTarget({.from = move.from,
                                    .wanted = migration_->wanted_target,
                                    .spares = plan_.spares,
                                    .in_use = in_use,
                                    .tried = move.tried});
  if (!target) {
    if (migration_->failure.empty()) migration_->failure = target.error().message;
    return false;
  }
  move.to = *target;
  move.candidate = {move.slot, migration_->id, move.candidate.attempt + 1};
  move.target_ready = move.source_ready = false;
  return true;
}

void Coordinator::PrepareTargetOf(const Move& move) {
  wire::Envelope envelope;
  *envelope.mutable_prepare_target()->mutable_launch() = LaunchOf(move.slot);
  SendCandidate(move, std::move(envelope));
}

void Coordinator::OnTargetReady(Move& move, const wire::TargetReady& ready) {
  if (!ready.error().empty())
    return RetryOrFail(move, std::format("{} cannot take them: {}", move.to, ready.error()));
  if (move.target_ready) return;
  move.target_ready = true;
  wire::Envelope envelope;
  wire::PrepareSource& source = *envelope.mutable_prepare_source();
  *source.mutable_addresses() = ready.addresses();
  source.set_image_port(ready.image_port());
  source.set_candidate_attempt(move.candidate.attempt);
  Send(move.slot, std::move(envelope));
  ReadyIf(migration_->step == Step::kTarget && EveryMove(&Move::target_ready));
}

void Coordinator::OnSourceReady(Move& move, const wire::SourceReady& ready) {
  if (ready.candidate_attempt() != move.candidate.attempt) return;
  if (!ready.error().empty())
    return RetryOrFail(move, std::format("{} cannot send to {}: {}", move.from, move.to, ready.error()));
  move.source_ready = true;
  ReadyIf(migration_->step == Step::kSource && EveryMove(&Move::source_ready));
}

// The move's candidate is no good. While nobody has been asked to stop, another target is tried.
void Coordinator::RetryOrFail(Move& move, std::string reason) {
  const bool preparing = PhaseOf(migration_->step) == Phase::kPrepare;
  if (!preparing) return FailMigration(std::move(reason));
  Log("attempt.failed", {{"migration", static_cast<std::int64_t>(migration_->id)},
                         {"attempt", static_cast<std::int64_t>(move.candidate.attempt)},
                         {"target", move.to},
                         {"reason", reason}});
  DiscardCandidate(move);
  move.tried.push_back(move.to);
  if (!PlaceMove(move)) {
    migration_->failure = std::move(reason);
    return Pull(Trigger::kFailed);
  }
  proxies_[move.candidate] = {.role = ProxyRole::kCandidate, .node = move.to, .facts = {}};
  actions_.push_back(StartProxy{move.candidate, move.to});
  Pull(Trigger::kRetry);
}

}  // namespace xmpi::core
