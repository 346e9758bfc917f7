// What operators and watchers want: a node left, a migration cancelled. An order becomes a
// migration, joins the one under way, makes it choose another target, or waits for its end.
#include <algorithm>
#include <format>

#include "base/limits.h"
#include "core/coordinator.h"

namespace xmpi::core {
namespace {

// Whose place may still change: the slots have not been handed over, and nobody goes back.
bool IsBeforeHandover(Step step) { return step < Step::kReconnect; }

bool Names(const std::vector<Move>& moves, std::string Move::* place, const std::string& node) {
  return std::ranges::any_of(moves,
                             [&](const Move& move) { return !move.left && move.*place == node; });
}

}  // namespace

void Coordinator::Refuse(const EvacuateOrder& order, std::string reason) {
  Log("evacuate.refused", {{"node", order.node}, {"reason", reason}});
  AnswerOrder(order.request,
              {.reason = std::move(reason) + "; the job goes on in place", .from = order.node});
}

// Orders that the coordinator has made from others have nobody to answer.
void Coordinator::AnswerOrder(RequestId request, MigrationResult result) {
  if (request != 0) actions_.push_back(Answer{request, std::move(result)});
}

void Coordinator::Accept(const EvacuateOrder& order) {
  if (order.within) {
    const std::int64_t deadline_us = now_us_ + order.within->count() * 1000;
    migration_->deadline_us = std::min(migration_->deadline_us.value_or(deadline_us), deadline_us);
  }
  migration_->precopy = migration_->precopy && order.precopy;
  migration_->requests.push_back({order.request, order.node});
  if (order.request != 0) actions_.push_back(Accepted{order.request, migration_->id});
}

void Coordinator::OnEvent(const EvacuateOrder& order) {
  const auto refuse = [&](std::string reason) {
    AnswerOrder(order.request, {.reason = std::move(reason), .from = order.node});
  };
  if (stage_ == JobStage::kEnding) return refuse("the job is ending");
  if (stage_ == JobStage::kStarting) return refuse("the job has not started yet; try again");
  if (!migration_) return StartMigration(order);
  if (Names(migration_->moves, &Move::from, order.node)) return Accept(order);
  const bool is_target =
      IsBeforeHandover(migration_->step) && Names(migration_->moves, &Move::to, order.node);
  if (is_target) return LeaveTarget(order);
  if (JoinsNow(order)) return Join(order);
  if (waiting_.size() >= limits::kWaitingOrders)
    return refuse(std::format("{} orders wait already", waiting_.size()));
  waiting_.push_back(order);
}

void Coordinator::StartMigration(const EvacuateOrder& order) {
  auto moves = PlaceNode(order);
  if (!moves) return Refuse(order, moves.error().message);
  migration_.emplace();
  migration_->id = ++last_migration_;
  migration_->ranks.resize(ranks_.size());
  migration_->moves = std::move(*moves);
  for (Move& move : migration_->moves) move.candidate = {move.slot, migration_->id, 1};
  Log("migration.begin", {{"migration", static_cast<std::int64_t>(migration_->id)},
                          {"from", order.node},
                          {"to", migration_->moves.front().to}});
  Accept(order);
  Enter(Step::kTarget);
  for (const Move& move : migration_->moves) StartCandidate(move);
}

void Coordinator::StartNextMigration() {
  while (!waiting_.empty() && !migration_) {
    const EvacuateOrder order = std::move(waiting_.front());
    waiting_.pop_front();
    OnEvent(order);
  }
}

// While nobody has been asked to stop, one quiesce can serve both. Later the order waits, unless
// its node will not be there for a second quiesce.
bool Coordinator::JoinsNow(const EvacuateOrder& order) const {
  if (PhaseOf(migration_->step) == Phase::kPrepare) return true;
  const bool urgent = order.within && *order.within < plan_.timeouts.quiesce;
  return urgent && migration_->failure.empty() && IsBeforeHandover(migration_->step);
}

void Coordinator::Join(const EvacuateOrder& order) {
  auto moves = PlaceNode(order);
  if (!moves) return Refuse(order, moves.error().message);
  Accept(order);
  Log("migration.join", {{"migration", static_cast<std::int64_t>(migration_->id)},
                         {"from", order.node},
                         {"to", moves->front().to}});
  for (Move& move : *moves) {
    // An earlier part of this migration may have tried for the same slot.
    AttemptId attempt = 1;
    std::erase_if(migration_->moves, [&](const Move& earlier) {
      if (earlier.slot != move.slot) return false;
      ReleaseHolders(earlier);
      attempt = earlier.candidate.attempt + 1;
      return true;
    });
    move.candidate = {move.slot, migration_->id, attempt};
    StartCandidate(move);
    migration_->moves.push_back(std::move(move));
  }
  const bool asked_to_stop = migration_->step >= Step::kNotice && migration_->step <= Step::kPark;
  if (!asked_to_stop) Pull(Trigger::kRetry);
}

// The node that was to take slots is to be left as well.
void Coordinator::LeaveTarget(const EvacuateOrder& order) {
  Accept(order);
  const MigrationId id = migration_->id;
  // One that stays may let the others be handed over: then they are the next migration's.
  const auto still_choosing = [&] {
    return migration_ && migration_->id == id && IsBeforeHandover(migration_->step);
  };
  for (std::size_t i = 0; still_choosing() && i < migration_->moves.size(); ++i) {
    Move& move = migration_->moves[i];
    if (move.left || move.to != order.node) continue;
    move.wanted.clear();
    TryElsewhere(move, std::format("{} is to be left, too", order.node));
  }
  // Slots that have been there before are another matter.
  const bool hosts =
      std::ranges::any_of(slots_, [&](const SlotState& slot) { return slot.node == order.node; });
  if (!hosts || !migration_ || migration_->id != id) return;
  if (JoinsNow(order)) return Join({.request = 0, .node = order.node, .to = order.to});
  if (waiting_.size() < limits::kWaitingOrders)
    waiting_.push_back({.request = 0, .node = order.node, .to = order.to});
}

void Coordinator::OnEvent(const CancelOrder& order) {
  const auto refuse = [&](std::string reason) {
    AnswerOrder(order.request,
                {.migration = migration_ ? migration_->id : 0, .reason = std::move(reason)});
  };
  if (!migration_) return refuse("no migration is going on");
  if (!IsBeforeHandover(migration_->step))
    return refuse(
        std::format("too late to cancel: the migration is in {}", Name(migration_->step)));
  for (const Move& move : migration_->moves) {
    if (!move.left && move.originals_lost)
      return refuse(
          std::format("too late to cancel: only the images of slot {} are left", move.slot));
  }
  AnswerOrder(order.request, {.migration = migration_->id, .ok = true});
  FailMigration("cancelled by the operator");
}

}  // namespace xmpi::core
