// Who says what to the launcher's machine: each message goes by its sender's role, its numbers are
// looked at, and what is not in a role's table or of another time is counted and never acted on.
#include <algorithm>
#include <format>
#include <utility>

#include "core/coordinator.h"

namespace xmpi::core {
namespace {

// Messages that mean nothing outside the migration their header names.
bool BelongsToMigration(wire::Envelope::BodyCase body) {
  return body >= wire::Envelope::kPrepareTarget && body <= wire::Envelope::kRelease;
}

template <auto Body>
RankId RankIn(const wire::Envelope& envelope) {
  return (envelope.*Body)().rank();
}

}  // namespace

void Coordinator::OnEvent(const ProxyMessage& message) {
  const auto found = proxies_.find(message.from);
  if (found == proxies_.end()) return Stale(message, "its proxy is gone");
  const ProxyRole role = found->second.role;
  switch (message.envelope.body_case()) {
    case wire::Envelope::kLeaving:
      if (role == ProxyRole::kFormer || stage_ == JobStage::kEnding) return Forget(message.from);
      return OnEvent(ProxyLost{message.from, message.envelope.leaving().reason()});
    case wire::Envelope::kProxyHello:
      return OnHello(message.from, message.envelope.proxy_hello());
    default:
      break;
  }
  switch (role) {
    case ProxyRole::kFormer:
      return OnFormerMessage(message);
    case ProxyRole::kSeat:
      return OnSeatMessage(message);
    case ProxyRole::kCandidate:
      return OnCandidateMessage(message);
    case ProxyRole::kGiver:
      return OnGiverMessage(message);
  }
}

// The one thing that still counts: originals that end before the commit point cannot come back.
void Coordinator::OnFormerMessage(const ProxyMessage& message) {
  Move* move = UncommittedMoveOf(message.from.slot);
  const bool original = move && move->source == message.from && message.envelope.has_rank_exited();
  if (!original) return Stale(message, "its proxy was released");
  Log("original.ended",
      {{"rank", static_cast<std::int64_t>(message.envelope.rank_exited().rank())}});
  move->originals_lost = true;
}

// What the holder of a seat may say. `rank`: which of its ranks it is about, if it is about one.
struct Coordinator::SeatMessage {
  wire::Envelope::BodyCase body;
  RankId (*rank)(const wire::Envelope& said);
  void (*act)(Coordinator& self, SlotId slot, const ProxyMessage& message);
};

const Coordinator::SeatMessage* Coordinator::FindSeatMessage(wire::Envelope::BodyCase body) {
  using E = wire::Envelope;
  using M = ProxyMessage;
  static constexpr SeatMessage kMessages[] = {
      {E::kLaunched, nullptr,
       [](auto& self, SlotId slot, const M& m) { self.OnLaunched(slot, m.envelope.launched()); }},
      {E::kRankHello, RankIn<&E::rank_hello>,
       [](auto& self, SlotId, const M& m) { self.OnRankHello(m.envelope.rank_hello()); }},
      {E::kRankSockets, RankIn<&E::rank_sockets>,
       [](auto& self, SlotId, const M& m) { self.OnRankSockets(m.envelope.rank_sockets()); }},
      {E::kRankFinalizing, RankIn<&E::rank_finalizing>,
       [](auto& self, SlotId, const M& m) {
         self.OnRankFinalizing(m.envelope.rank_finalizing().rank());
       }},
      {E::kRankExited, RankIn<&E::rank_exited>,
       [](auto& self, SlotId, const M& m) { self.OnRankExited(m.envelope.rank_exited()); }},
      {E::kRankAborted, RankIn<&E::rank_aborted>,
       [](auto& self, SlotId, const M& m) { self.OnRankAborted(m.envelope.rank_aborted()); }},
      {E::kProblem, nullptr,
       [](auto& self, SlotId slot, const M& m) { self.OnProblem(self.Place(slot), m); }},
      {E::kFenceIn, nullptr,
       [](auto& self, SlotId slot, const M& m) { self.OnFenceIn(slot, m.envelope.fence_in()); }},
      {E::kNameRequest, nullptr,
       [](auto& self, SlotId slot, const M& m) {
         self.OnNameRequest(slot, m.envelope.name_request());
       }},
      {E::kSourceReady, nullptr,
       [](auto& self, SlotId slot, const M& m) { self.OnSeatSourceReady(slot, m); }},
      {E::kProgress, nullptr,
       [](auto& self, SlotId slot, const M& m) { self.OnSeatProgress(slot, m); }},
      {E::kNoticed, nullptr,
       [](auto& self, SlotId slot, const M& m) { self.OnNoticed(slot, m.envelope.noticed()); }},
      {E::kArrived, RankIn<&E::arrived>,
       [](auto& self, SlotId, const M& m) { self.OnArrived(m.envelope.arrived()); }},
      {E::kChecked, RankIn<&E::checked>,
       [](auto& self, SlotId, const M& m) { self.OnChecked(m.envelope.checked()); }},
      {E::kParked, RankIn<&E::parked>,
       [](auto& self, SlotId, const M& m) { self.OnParked(m.envelope.parked()); }},
      {E::kResumed, nullptr, [](auto&, SlotId, const M&) {}},  // nobody waits for it
      {E::kDumped, nullptr,
       [](auto& self, SlotId slot, const M& m) { self.OnSeatDumped(slot, m); }},
      {E::kRunning, RankIn<&E::running>,
       [](auto& self, SlotId, const M& m) { self.OnRunning(m.envelope.running()); }},
  };
  const auto* found = std::ranges::find(kMessages, body, &SeatMessage::body);
  return found == std::end(kMessages) ? nullptr : found;
}

void Coordinator::OnSeatMessage(const ProxyMessage& message) {
  const SlotId slot = message.from.slot;
  const wire::Envelope& envelope = message.envelope;
  if (envelope.header().epoch() != slots_[slot].epoch) return Stale(message, "of another epoch");
  const bool is_current = migration_ && migration_->id == envelope.header().migration();
  if (BelongsToMigration(envelope.body_case()) && !is_current)
    return Stale(message, "of another migration");
  const SeatMessage* known = FindSeatMessage(envelope.body_case());
  if (known == nullptr) return Stale(message, "unexpected");
  if (known->rank != nullptr && !KnownRank(slot, known->rank(envelope)))
    return Stale(message, "of a rank that is not the slot's");
  known->act(*this, slot, message);
}

void Coordinator::OnSeatSourceReady(SlotId slot, const ProxyMessage& message) {
  const wire::SourceReady& ready = message.envelope.source_ready();
  Move* move = MoveOf(slot);
  if (!move || ready.candidate_attempt() != move->candidate.attempt)
    return Stale(message, "of another attempt");
  OnSourceReady(*move, ready);
}

void Coordinator::OnSeatProgress(SlotId slot, const ProxyMessage& message) {
  Move* move = MoveOf(slot);
  if (!move) return Stale(message, "of no move");
  OnProgress(*move, message.envelope.progress());
}

void Coordinator::OnSeatDumped(SlotId slot, const ProxyMessage& message) {
  const wire::Dumped& dumped = message.envelope.dumped();
  Move* move = MoveOf(slot);
  if (!move || dumped.candidate_attempt() != move->candidate.attempt)
    return Stale(message, "of another attempt");
  OnDumped(*move, dumped);
}

void Coordinator::OnProblem(const std::string& place, const ProxyMessage& message) {
  actions_.push_back(Tell{std::format("{}: {}", place, message.envelope.problem().text())});
}

void Coordinator::OnCandidateMessage(const ProxyMessage& message) {
  const wire::Envelope& envelope = message.envelope;
  Move* found = FindMove(&Move::candidate, message.from);
  const bool is_current = found != nullptr && envelope.header().migration() == migration_->id &&
                          envelope.header().attempt() == found->candidate.attempt;
  if (!is_current) return Stale(message, "of another attempt");
  Move& move = *found;
  switch (envelope.body_case()) {
    case wire::Envelope::kTargetReady:
      return OnTargetReady(move, envelope.target_ready());
    case wire::Envelope::kImagesHeld:
      return OnImagesHeld(move, envelope.images_held());
    case wire::Envelope::kRestored:
      return OnRestored(move, envelope.restored());
    case wire::Envelope::kProblem:
      return OnProblem(move.to, message);
    case wire::Envelope::kRankExited:
      return OnCopyExited(move, envelope.rank_exited().rank());
    default:
      return Stale(message, "unexpected of a candidate");
  }
}

// Of copies that are being made anew Restored will tell.
void Coordinator::OnCopyExited(Move& move, RankId rank) {
  if (!std::exchange(move.restored, false)) return;
  move.ranks.clear();
  OnCandidateFailed(move,
                    std::format("the copy of rank {} on {} ended before handover", rank, move.to));
}

void Coordinator::OnGiverMessage(const ProxyMessage& message) {
  const wire::Envelope& envelope = message.envelope;
  Move* move = FindMove(&Move::giver, message.from);
  if (move == nullptr || (move->left && !move->rescued))
    return Stale(message, "its images are not needed");
  const AttemptId attempt = move->candidate.attempt;
  if (envelope.has_source_ready() && envelope.source_ready().candidate_attempt() == attempt)
    return OnSourceReady(*move, envelope.source_ready());
  if (envelope.has_dumped() && envelope.dumped().candidate_attempt() == attempt)
    return OnDumped(*move, envelope.dumped());
  if (envelope.has_progress()) return OnProgress(*move, envelope.progress());
  Stale(message, "unexpected of who only gives images");
}

void Coordinator::Stale(const ProxyMessage& message, std::string_view why) {
  ++stale_messages_;
  Log("stale.message", {{"proxy", ToString(message.from)},
                        {"body", static_cast<std::int64_t>(message.envelope.body_case())},
                        {"why", std::string(why)}});
}

}  // namespace xmpi::core
