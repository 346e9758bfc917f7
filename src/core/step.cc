// Walking the table of phase.h: what each trigger means now, and what entering a step begins.
#include <algorithm>
#include <format>

#include "base/check.h"
#include "core/coordinator.h"

namespace xmpi::core {
namespace {

// What a step waits for: a report of every rank, or something of every move.
struct Awaited {
  Step step;
  bool RankProgress::* of_ranks;
  bool Move::* of_moves;
  std::string_view missing;  // of whoever is late; {}: stop_call
};

constexpr Awaited kAwaited[] = {
    {Step::kTarget, nullptr, &Move::target_ready, "has no candidate yet"},
    {Step::kSource, nullptr, &Move::source_ready, "is not connected to its target"},
    {Step::kNotice, &RankProgress::noticed, nullptr, "has not answered the notice"},
    {Step::kArrive, &RankProgress::arrived, nullptr, "has not reached call {} of XMPI_Quiesce"},
    {Step::kCheck, &RankProgress::checked, nullptr, "has not passed the barrier"},
    {Step::kPark, &RankProgress::parked, nullptr, "has not closed its session"},
    {Step::kReplace, nullptr, &Move::source_ready, "is not connected to its target"},
    {Step::kDump, nullptr, &Move::dumped, "is not dumped"},
    {Step::kTransfer, nullptr, &Move::held, "is not held by its target"},
    {Step::kTransfer, nullptr, &Move::drained, "has output under way"},
    {Step::kRestore, nullptr, &Move::restored, "is not restored"},
    {Step::kReconnect, &RankProgress::running, nullptr, "does not run again"},
    {Step::kReturn, &RankProgress::running, nullptr, "does not run again"},
};

std::chrono::milliseconds DeadlineOf(Step step, const Timeouts& timeouts) {
  switch (step) {
    case Step::kTarget:
    case Step::kSource:
    case Step::kReplace:
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
    Log("step.unexpected",
        {{"step", std::string(Name(migration_->step))}, {"trigger", std::string(Name(trigger))}});
    return;
  }
  if (trigger == Trigger::kDeadline)
    migration_->failure =
        std::format("{} did not end by its deadline: {}", Name(migration_->step), WhoIsMissing());
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
    // A phase that is gone through again for a slot's next target began when it first did.
    std::int64_t& began = migration_->phase_began_us[static_cast<int>(phase)];
    if (began == 0) began = now_us_;
    Log(std::format("{}.begin", Name(phase)),
        {{"migration", static_cast<std::int64_t>(migration_->id)}});
  }
  StartStepTimer();
  Begin(step);
  if (migration_ && migration_->step == step) Advance();
}

void Coordinator::StartStepTimer() {
  actions_.push_back(StartTimer{{.kind = TimerId::Kind::kStep,
                                 .migration = migration_->id,
                                 .attempt = migration_->moves.front().candidate.attempt,
                                 .step = migration_->step,
                                 .entry = ++migration_->entries},
                                DeadlineOf(migration_->step, plan_.timeouts)});
}

void Coordinator::Begin(Step step) {
  wire::Envelope envelope;
  switch (step) {
    case Step::kNotice:
      return EnterNotice();
    case Step::kArrive:
      envelope.mutable_agree()->set_stop_call(migration_->stop_call);
      return SendAllSlots(envelope);
    case Step::kCheck:
      envelope.mutable_check();
      return SendAllSlots(envelope);
    case Step::kPark:
      envelope.mutable_teardown();
      return SendAllSlots(envelope);
    case Step::kDump:
      return EnterDump();
    case Step::kRestore:
      return EnterRestore();
    case Step::kReconnect:
    case Step::kReturn:
      return EnterReconnect();
    default:
      return;  // kTarget, kSource and kReplace are entered per move, by prepare.cc
  }
}

void Coordinator::Advance() {
  if (migration_ && StepIsDone()) Pull(WhatFollows());
}

bool Coordinator::StepIsDone() const {
  return std::ranges::all_of(kAwaited, [this](const Awaited& each) {
    if (each.step != migration_->step) return true;
    return each.of_ranks != nullptr ? EveryRank(each.of_ranks) : EveryMove(each.of_moves);
  });
}

bool Coordinator::IsLate(const Move& move) const {
  return std::ranges::any_of(kAwaited, [&](const Awaited& each) {
    return each.step == migration_->step && each.of_moves != nullptr && !(move.*each.of_moves);
  });
}

Trigger Coordinator::WhatFollows() const {
  const Step step = migration_->step;
  if (EndsOnlyTogether(step) && !migration_->failure.empty()) return Trigger::kFailed;
  if (step == Step::kPark && !EveryMove(&Move::source_ready)) return Trigger::kRetry;
  const bool any_moved = std::ranges::any_of(migration_->moves, &Move::moved);
  if (step == Step::kReconnect && !any_moved) return Trigger::kReversed;
  if (step == Step::kReturn && any_moved) return Trigger::kReversed;
  return Trigger::kReady;
}

void Coordinator::FinishMigration() {
  if (migration_->step != Step::kBroken) {
    for (const Move& move : migration_->moves) ReleaseHolders(move);
  }
  LetInputFlow();
  Migration done = std::move(*migration_);
  migration_.reset();
  const MigrationResult whole = Summarize(done);
  Log("migration.end", {{"migration", static_cast<std::int64_t>(done.id)},
                        {"outcome", std::string(Name(done.step))},
                        {"from", whole.from},
                        {"to", whole.to},
                        {"downtime_us", whole.downtime_us},
                        {"move_us", whole.move_us},
                        {"reason", whole.reason}});
  for (const Request& request : done.requests) {
    MigrationResult result = Summarize(done, request.node);
    const bool is_left = std::ranges::none_of(
        slots_, [&](const SlotState& slot) { return slot.node == request.node; });
    result.ok = is_left && done.step != Step::kBroken;
    AnswerOrder(request.id, std::move(result));
  }
  if (done.step == Step::kBroken && stage_ != JobStage::kEnding)
    return BeginEnd(1, std::format("migration {} failed in {}: {}; the job cannot go on", done.id,
                                   Name(done.last_phase), done.failure));
  if (stage_ != JobStage::kEnding) StartNextMigration();
}

std::string Coordinator::WhoIsMissing() const {
  std::string who;
  const auto add = [&](const std::string& name, const std::string& missing) {
    const std::string what = std::vformat(missing, std::make_format_args(migration_->stop_call));
    who += std::format("{}{} {}", who.empty() ? "" : ", ", name, what);
  };
  for (const Awaited& each : kAwaited) {
    if (each.step != migration_->step) continue;
    for (RankId rank = 0; each.of_ranks != nullptr && rank < ranks_.size(); ++rank) {
      const RankProgress& progress = migration_->ranks[rank];
      if (!(progress.*each.of_ranks))
        add(PlaceOfRank(rank),
            std::string(each.missing) + std::format(" (calls passed: {})", progress.passed));
    }
    for (const Move& move : migration_->moves) {
      if (each.of_moves != nullptr && !move.left && !(move.*each.of_moves))
        add(std::format("slot {} ({} -> {})", move.slot, move.from, move.to),
            std::string(each.missing));
    }
  }
  return who;
}

bool Coordinator::EveryRank(bool RankProgress::* flag) const {
  return std::ranges::all_of(migration_->ranks, flag);
}

bool Coordinator::EveryMove(bool Move::* flag) const {
  return std::ranges::all_of(migration_->moves,
                             [&](const Move& move) { return move.left || move.*flag; });
}

}  // namespace xmpi::core
