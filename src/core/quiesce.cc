// quiesce: notice, agreement on stop_call, arrival, check, teardown (docs/architecture.md,
// "The seven phases"; paper 4.3 steps 3 to 9, with an agreed stop_call in place of each rank's own
// test).
#include <algorithm>
#include <format>
#include <limits>

#include "core/coordinator.h"

namespace xmpi::core {

void Coordinator::EnterNotice() {
  wire::Envelope envelope;
  envelope.mutable_notice();
  SendAllSlots(envelope);
}

void Coordinator::OnNoticed(SlotId slot, const wire::Noticed& noticed) {
  const auto& specs = plan_.slots[slot].ranks;
  const bool plausible = noticed.passed_size() == static_cast<int>(specs.size()) &&
                         std::ranges::all_of(noticed.passed(), [](std::uint64_t passed) {
                           return passed < std::numeric_limits<std::uint64_t>::max();
                         });
  if (!plausible)
    return FailMigration(std::format("{} answered the notice with {} counts, not {}", Place(slot),
                                     noticed.passed_size(), specs.size()));
  for (std::size_t i = 0; i < specs.size(); ++i) {
    RankProgress& rank = migration_->ranks[specs[i].rank()];
    rank.noticed = true;
    rank.passed = noticed.passed(static_cast<int>(i));
  }
  if (migration_->step != Step::kNotice || !EveryRank(&RankProgress::noticed)) return;
  AgreeOnStopCall();
  Advance();
}

// Not a call that anybody has entered already: all can still stop in it together.
void Coordinator::AgreeOnStopCall() {
  std::uint64_t highest = 0;
  for (const RankProgress& rank : migration_->ranks) highest = std::max(highest, rank.passed);
  migration_->stop_call = highest + 1;
  Log("quiesce.agree", {{"migration", static_cast<std::int64_t>(migration_->id)},
                        {"stop_call", static_cast<std::int64_t>(migration_->stop_call)}});
}

void Coordinator::OnArrived(const wire::Arrived& arrived) {
  if (!arrived.refusal().empty())
    return FailMigration(std::format("{} cannot stop at call {}: {}", PlaceOfRank(arrived.rank()),
                                     migration_->stop_call, arrived.refusal()));
  if (migration_->first_arrival_us == 0) migration_->first_arrival_us = now_us_;
  migration_->ranks[arrived.rank()].arrived = true;
  if (migration_->step == Step::kArrive) Advance();
}

// Everybody has entered the barrier by then, so a refusal waits for the others' answers: a rank
// can be called back only from behind the barrier.
void Coordinator::OnChecked(const wire::Checked& checked) {
  RankProgress& rank = migration_->ranks[checked.rank()];
  rank.checked = true;
  rank.refusal = checked.refusal();
  if (migration_->step != Step::kCheck || !EveryRank(&RankProgress::checked)) return;
  for (RankId id = 0; id < migration_->ranks.size(); ++id) {
    if (!migration_->ranks[id].refusal.empty())
      FailMigration(std::format("{} cannot stop at call {}: {}", PlaceOfRank(id),
                                migration_->stop_call, migration_->ranks[id].refusal));
  }
  Advance();
}

void Coordinator::OnParked(const wire::Parked& parked) {
  migration_->ranks[parked.rank()].parked = true;
  if (migration_->step == Step::kPark) Advance();
}

void Coordinator::CallOff() {
  wire::Envelope envelope;
  envelope.mutable_cancel_quiesce()->set_reason(migration_->failure);
  SendAllSlots(envelope);
}

}  // namespace xmpi::core
