// prepare: the job runs on while a candidate proxy is started on a target, both sides run preflight
// and the image connection is opened (paper 4.3 steps 1 and 2). A target that is replaced later
// goes through the same, whatever the ranks are doing meanwhile.
#include <algorithm>
#include <format>
#include <sstream>
#include <string>

#include "core/coordinator.h"
#include "core/placement.h"

namespace xmpi::core {
namespace {

// Of a rank's sockets (wire/rank_link.h), those that others connect to.
std::string ListeningOnly(const std::string& sockets) {
  std::istringstream words(sockets);
  std::string listening, word;
  words >> listening;  // the PID
  while (words >> word)
    if (word.contains('@')) listening += " " + word;
  return listening;
}

}  // namespace

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

// A move with a target for every slot on the order's node; their attempts are not numbered yet.
Result<std::vector<Move>> Coordinator::PlaceNode(const EvacuateOrder& order) {
  std::vector<Move> moves;
  for (SlotId slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].node != order.node) continue;
    Move& move = moves.emplace_back();
    move.slot = slot;
    move.source = move.giver = slots_[slot].proxy;
    move.from = order.node;
    move.wanted = order.to.value_or("");
  }
  if (moves.empty()) {
    std::string nodes;
    for (const SlotState& slot : slots_) nodes += (nodes.empty() ? "" : ", ") + slot.node;
    return Fail(ErrorCode::kRefused,
                std::format("no rank of the job is on {}; it runs on {}", order.node, nodes));
  }
  if (std::string why = WhyNotMovable(); !why.empty()) return Fail(ErrorCode::kRefused, why);
  for (std::size_t i = 0; i < moves.size(); ++i)
    XMPI_RETURN_IF_ERROR(PlaceMove(moves[i], std::span(moves).first(i)));
  return moves;
}

// Chooses the move's next target. `others` take seats as well.
Result<> Coordinator::PlaceMove(Move& move, std::span<const Move> others) const {
  std::vector<std::string> seats;
  std::vector<std::string> avoid = move.tried;
  for (const SlotState& slot : slots_) seats.push_back(slot.node);
  const auto count = [&](const Move& other) {
    if (&other == &move || other.left) return;
    seats.push_back(other.to);
    avoid.push_back(other.from);
  };
  for (const Move& other : others) count(other);
  if (migration_) std::ranges::for_each(migration_->moves, count);
  for (const EvacuateOrder& order : waiting_) avoid.push_back(order.node);
  XMPI_ASSIGN_OR_RETURN(move.to, ChooseTarget({.from = move.from,
                                               .wanted = move.wanted,
                                               .spares = plan_.spares,
                                               .seats = seats,
                                               .avoid = avoid}));
  return {};
}

void Coordinator::StartCandidate(const Move& move) {
  proxies_[move.candidate] = {.role = ProxyRole::kCandidate, .node = move.to};
  actions_.push_back(StartProxy{move.candidate, move.to});
}

void Coordinator::PrepareTargetOf(const Move& move) {
  wire::Envelope envelope;
  *envelope.mutable_prepare_target()->mutable_launch() = LaunchOf(move.slot);
  SendCandidate(move.candidate, std::move(envelope));
}

void Coordinator::AddSockets(SlotId slot, wire::PrepareSource* source) const {
  for (RankId rank = 0; rank < ranks_.size(); ++rank) {
    const RankState& state = ranks_[rank];
    if (state.sockets.empty()) continue;
    wire::RankSockets& sockets = *source->add_sockets();
    sockets.set_rank(rank);
    sockets.set_sockets(state.slot == slot ? state.sockets : ListeningOnly(state.sockets));
  }
}

void Coordinator::OnTargetReady(Move& move, const wire::TargetReady& ready) {
  if (!ready.error().empty())
    return OnCandidateFailed(move, std::format("{} cannot take them: {}", move.to, ready.error()));
  if (move.target_ready) return;
  move.target_ready = true;
  wire::Envelope envelope;
  wire::PrepareSource& source = *envelope.mutable_prepare_source();
  *source.mutable_addresses() = ready.addresses();
  source.set_image_port(ready.image_port());
  source.set_candidate_attempt(move.candidate.attempt);
  source.set_target(move.to);
  AddSockets(move.slot, &source);
  // Only while they run: a target that is replaced later gets everything from stopped ranks.
  if (migration_->precopy && migration_->step <= Step::kSource)
    source.set_precopy_ms(static_cast<std::uint32_t>(plan_.timeouts.precopy.count()));
  source.set_within_ms(static_cast<std::uint32_t>(MillisecondsLeft().value_or(0)));
  SendGiver(move, std::move(envelope));
  Advance();
}

void Coordinator::OnSourceReady(Move& move, const wire::SourceReady& ready) {
  if (!ready.error().empty())
    return OnCandidateFailed(
        move, std::format("{} cannot send to {}: {}", move.from, move.to, ready.error()));
  move.source_ready = true;
  if (ready.has_plan()) OnPlan(move, ready.plan());
  if (move.rescued) return PushRescue(move);
  Advance();
}

// Until the first of the nodes is gone, if anybody has said when; at least one.
std::optional<std::int64_t> Coordinator::MillisecondsLeft() const {
  if (!migration_->deadline_us) return std::nullopt;
  return std::max<std::int64_t>(1, (*migration_->deadline_us - now_us_) / 1000);
}

void Coordinator::OnPlan(Move& move, const wire::Plan& plan) {
  move.plan = plan;
  const auto number = [](std::uint64_t value) { return static_cast<std::int64_t>(value); };
  const auto predicted_ms = number(plan.predicted_us() / 1000);
  Log("prepare.plan", {{"migration", number(migration_->id)},
                       {"slot", number(move.slot)},
                       {"memory_bytes", number(plan.memory_bytes())},
                       {"dirty_bytes", number(plan.dirty_bytes())},
                       {"sent_bytes", number(plan.sent_bytes())},
                       {"rounds", number(plan.rounds())},
                       {"bytes_per_s", number(plan.bytes_per_s())},
                       {"ended", plan.why_ended()},
                       {"predicted_ms", predicted_ms}});
  const std::optional<std::int64_t> left = MillisecondsLeft();
  if (left && *left < predicted_ms)
    actions_.push_back(Tell{std::format(
        "slot {} on {}: the notice leaves {:.1f} s and its move is expected to take {:.1f} s; it "
        "is tried all the same",
        move.slot, move.from, static_cast<double>(*left) / 1000,
        static_cast<double>(predicted_ms) / 1000)});
}

// Prepare's deadline is for one who does nothing; the pre-copy has a limit of its own.
void Coordinator::OnProgress(Move& move, const wire::Progress& progress) {
  move.progress = progress;
  if (migration_->step == Step::kSource) StartStepTimer();
  std::uint64_t done = 0;
  std::uint64_t total = 0;
  for (const wire::Progress::Rank& rank : progress.ranks()) {
    done += rank.done_bytes();
    total += rank.total_bytes();
  }
  const std::uint64_t rate = progress.bytes_per_s();
  const auto number = [](std::uint64_t value) { return static_cast<std::int64_t>(value); };
  Log("move.progress",
      {{"migration", number(migration_->id)},
       {"slot", number(move.slot)},
       {"stage", std::string(StageOf(progress))},
       {"done_bytes", number(done)},
       {"total_bytes", number(total)},
       {"bytes_per_s", number(rate)},
       {"eta_ms", number(rate > 0 && total > done ? (total - done) * 1000 / rate : 0)}});
}

}  // namespace xmpi::core
