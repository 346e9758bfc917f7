// Walking the table of phase.h: what each trigger means now, and what entering a step begins.
#include <algorithm>
#include <format>

#include "base/check.h"
#include "core/coordinator.h"

namespace xmpi::core {
namespace {

std::chrono::milliseconds DeadlineOf(Step step, const Timeouts& timeouts) {
  switch (step) {
    case Step::kTarget:
    case Step::kSource:
      return timeouts.prepare;
    case Step::kNotice:
    case Step::kArrive:
      return timeouts.quiesce;
    case Step::kCheck:
      return timeouts.check;
    case Step::kPark:
      return timeouts.park;
    case Step::kDump:
      return timeouts.dump;
    case Step::kTransfer:
      return timeouts.transfer;
    case Step::kRestore:
      return timeouts.restore;
    default:
      return timeouts.reconnect;
  }
}

}  // namespace

void Coordinator::Pull(Trigger trigger) {
  const std::optional<Step> next = Next(migration_->step, trigger);
  if (!next) {
    Log("step.unexpected", {{"step", std::string(Name(migration_->step))},
                            {"trigger", std::string(Name(trigger))}});
    return;
  }
  if (trigger == Trigger::kDeadline)
    migration_->failure = std::format("{} did not end by its deadline: {}", Name(migration_->step),
                                      WhoIsMissing());
  const bool stop_was_asked = migration_->step >= Step::kNotice;
  const bool called_off = *next == Step::kStayed && !IsIrrevocable(migration_->step);
  if (called_off && stop_was_asked) CallOff();
  if (called_off || *next == Step::kReturn) AbandonMoves();
  if (*next == Step::kReconnect) HandOver();
  Enter(*next);
}

void Coordinator::Enter(Step step) {
  const Phase before = PhaseOf(migration_->step);
  const Phase phase = PhaseOf(step);
  const bool first = migration_->phase_began_us[static_cast<int>(Phase::kPrepare)] == 0;
  if ((phase != before || IsEnd(step)) && step != Step::kReturn)
    migration_->phase_ended_us[static_cast<int>(before)] = now_us_;
  if (!IsEnd(step)) migration_->last_phase = phase;
  migration_->step = step;
  if (IsEnd(step)) return FinishMigration();
  if ((phase != before || first) && step != Step::kReturn) {
    migration_->phase_began_us[static_cast<int>(phase)] = now_us_;
    Log(std::format("{}.begin", Name(phase)), {{"migration", static_cast<std::int64_t>(migration_->id)}});
  }
  actions_.push_back(StartTimer{{.kind = TimerId::Kind::kStep,
                                 .migration = migration_->id,
                                 .attempt = migration_->moves.front().candidate.attempt,
                                 .step = step},
                                DeadlineOf(step, plan_.timeouts)});
  switch (step) {
    case Step::kNotice:
      return EnterNotice();
    case Step::kDump:
      return EnterDump();
    case Step::kTransfer:
      return EnterTransfer();
    case Step::kRestore:
      return EnterRestore();
    case Step::kReconnect:
      return EnterReconnect();
    case Step::kReturn:
      return EnterReturn();
    case Step::kArrive: {
      wire::Envelope envelope;
      envelope.mutable_agree()->set_stop_call(migration_->stop_call);
      return SendAllSlots(envelope);
    }
    case Step::kCheck: {
      wire::Envelope envelope;
      envelope.mutable_check();
      return SendAllSlots(envelope);
    }
    case Step::kPark: {
      wire::Envelope envelope;
      envelope.mutable_teardown();
      return SendAllSlots(envelope);
    }
    default:
      return;  // kTarget and kSource are entered per move, by prepare.cc
  }
}

void Coordinator::FailMigration(std::string reason) {
  if (!migration_) return;
  if (migration_->failure.empty()) migration_->failure = std::move(reason);
  if (!EndsOnlyTogether(migration_->step)) Pull(Trigger::kFailed);
}

void Coordinator::AllAreOut() {
  Pull(migration_->failure.empty() ? Trigger::kReady : Trigger::kFailed);
}

// The move will not happen: copies and candidate go first, then the source's ranks are let go.
void Coordinator::AbandonMoves() {
  for (const Move& move : migration_->moves) {
    DiscardCandidate(move);
    wire::Envelope envelope;
    envelope.mutable_discard();
    Send(move.slot, std::move(envelope));
    actions_.push_back(FeedInput{.slot = move.slot, .hold = false});
  }
}

void Coordinator::DiscardCandidate(const Move& move) {
  const auto found = proxies_.find(move.candidate);
  if (found == proxies_.end() || found->second.role != ProxyRole::kCandidate) return;
  wire::Envelope envelope;
  envelope.mutable_discard();
  SendFormer(move.candidate, std::move(envelope));
  found->second.role = ProxyRole::kFormer;
}

void Coordinator::FinishMigration() {
  Migration done = std::move(*migration_);
  MigrationResult result = Summarize(done);
  if (done.step == Step::kStayed) result.reason += "; the job goes on in place";
  Log("migration.end", {{"migration", static_cast<std::int64_t>(done.id)},
                        {"outcome", std::string(Name(done.step))},
                        {"from", result.from},
                        {"to", result.to},
                        {"downtime_us", result.downtime_us},
                        {"move_us", result.move_us},
                        {"reason", result.reason}});
  for (const RequestId request : done.requests) actions_.push_back(Answer{request, result});
  migration_.reset();
  if (done.step == Step::kBroken && stage_ != JobStage::kEnding)
    return BeginEnd(1, std::format("migration {} failed in {}: {}; the job cannot go on", done.id,
                                   Name(done.last_phase), done.failure));
  if (stage_ != JobStage::kEnding) StartNextMigration();
}

std::string Coordinator::WhoIsMissing() const {
  std::string who;
  const auto add = [&](std::string name) { who += (who.empty() ? "" : ", ") + std::move(name); };
  const auto add_ranks = [&](bool RankProgress::* flag, std::string_view what) {
    for (RankId rank = 0; rank < ranks_.size(); ++rank) {
      if (!(migration_->ranks[rank].*flag))
        add(std::format("{} {} (calls passed: {})", PlaceOfRank(rank), what,
                        migration_->ranks[rank].passed));
    }
  };
  const auto add_moves = [&](bool Move::* flag, std::string_view what) {
    for (const Move& move : migration_->moves) {
      if (!(move.*flag)) add(std::format("slot {} ({} -> {}) {}", move.slot, move.from, move.to, what));
    }
  };
  switch (migration_->step) {
    case Step::kTarget:
      add_moves(&Move::target_ready, "has no candidate yet");
      break;
    case Step::kSource:
      add_moves(&Move::source_ready, "is not connected to its target");
      break;
    case Step::kNotice:
      add_ranks(&RankProgress::noticed, "has not answered the notice");
      break;
    case Step::kArrive:
      add_ranks(&RankProgress::arrived,
                std::format("has not reached call {} of XMPI_Quiesce", migration_->stop_call));
      break;
    case Step::kCheck:
      add_ranks(&RankProgress::checked, "has not passed the barrier");
      break;
    case Step::kPark:
      add_ranks(&RankProgress::parked, "has not closed its session");
      break;
    case Step::kDump:
      add_moves(&Move::dumped, "is not dumped");
      break;
    case Step::kTransfer:
      add_moves(&Move::held, "is not held by its target");
      add_moves(&Move::drained, "has output under way");
      break;
    case Step::kRestore:
      add_moves(&Move::restored, "is not restored");
      break;
    default:
      add_ranks(&RankProgress::running, "does not run again");
      break;
  }
  return who.empty() ? "everybody is there" : who;
}

bool Coordinator::EveryRank(bool RankProgress::* flag) const {
  return std::ranges::all_of(migration_->ranks, flag);
}

bool Coordinator::EveryMove(bool Move::* flag) const {
  return std::ranges::all_of(migration_->moves, flag);
}

}  // namespace xmpi::core
