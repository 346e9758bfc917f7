#include "core/coordinator.h"

#include <algorithm>
#include <format>

#include "base/check.h"

namespace xmpi::core {
namespace {

// Messages that mean nothing outside the migration their header names.
bool BelongsToMigration(wire::Envelope::BodyCase body) {
  return body >= wire::Envelope::kPrepareTarget && body <= wire::Envelope::kRelease;
}

}  // namespace

Coordinator::Coordinator(JobPlan plan)
    : plan_(std::move(plan)), hub_(static_cast<SlotId>(plan_.slots.size())) {
  for (SlotId slot = 0; slot < plan_.slots.size(); ++slot) {
    slots_.push_back({.node = plan_.slots[slot].node, .proxy = {.slot = slot}});
    for (const wire::RankSpec& rank : plan_.slots[slot].ranks) {
      if (ranks_.size() <= rank.rank()) ranks_.resize(rank.rank() + 1);
      ranks_[rank.rank()].slot = slot;
    }
  }
}

Actions Coordinator::On(const Event& event, std::int64_t now_us) {
  now_us_ = now_us;
  actions_.clear();
  if (stage_ != JobStage::kEnded) std::visit([this](const auto& what) { OnEvent(what); }, event);
  return std::move(actions_);
}

void Coordinator::OnEvent(const ProxyMessage& message) {
  const auto found = proxies_.find(message.from);
  if (found == proxies_.end()) return Stale(message, "its proxy is gone");
  if (message.envelope.body_case() == wire::Envelope::kLeaving) {
    const bool expected = found->second.role == ProxyRole::kFormer || stage_ == JobStage::kEnding;
    if (expected) return Forget(message.from);
    return OnEvent(ProxyLost{message.from, message.envelope.leaving().reason()});
  }
  if (message.envelope.body_case() == wire::Envelope::kProxyHello)
    return OnHello(message.from, message.envelope.proxy_hello());
  const ProxyRole role = found->second.role;
  const bool of_a_migration = role == ProxyRole::kCandidate || role == ProxyRole::kGiver;
  if (of_a_migration && !migration_) return Stale(message, "its migration is over");
  switch (role) {
    case ProxyRole::kFormer:
      return OnFormerMessage(message);
    case ProxyRole::kSeat:
      return OnSeatMessage(message.from.slot, message);
    case ProxyRole::kCandidate:
      for (Move& move : migration_->moves) {
        if (move.candidate == message.from) return OnCandidateMessage(move, message);
      }
      return Stale(message, "its attempt is over");
    case ProxyRole::kGiver:
      for (Move& move : migration_->moves) {
        const bool needed = !move.left || move.rescued;
        if (move.giver == message.from && needed) return OnGiverMessage(move, message);
      }
      return Stale(message, "its images are not needed");
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

void Coordinator::OnSeatMessage(SlotId slot, const ProxyMessage& message) {
  const wire::Envelope& envelope = message.envelope;
  const auto body = envelope.body_case();
  if (envelope.header().epoch() != slots_[slot].epoch) return Stale(message, "of another epoch");
  if (BelongsToMigration(body) && (!migration_ || migration_->id != envelope.header().migration()))
    return Stale(message, "of another migration");
  Move* move = MoveOf(slot);
  switch (body) {
    case wire::Envelope::kLaunched:
      return OnLaunched(slot, envelope.launched());
    case wire::Envelope::kRankHello:
      if (KnownRank(slot, envelope.rank_hello().rank())) return OnRankHello(envelope.rank_hello());
      break;
    case wire::Envelope::kRankSockets:
      if (!KnownRank(slot, envelope.rank_sockets().rank())) break;
      ranks_[envelope.rank_sockets().rank()].sockets = envelope.rank_sockets().sockets();
      return;
    case wire::Envelope::kRankFinalizing:
      if (KnownRank(slot, envelope.rank_finalizing().rank()))
        return OnRankFinalizing(envelope.rank_finalizing().rank());
      break;
    case wire::Envelope::kRankExited:
      if (KnownRank(slot, envelope.rank_exited().rank()))
        return OnRankExited(envelope.rank_exited());
      break;
    case wire::Envelope::kRankAborted:
      if (KnownRank(slot, envelope.rank_aborted().rank()))
        return OnRankAborted(envelope.rank_aborted());
      break;
    case wire::Envelope::kFenceIn:
      return OnFenceIn(slot, envelope.fence_in());
    case wire::Envelope::kNameRequest:
      return OnNameRequest(slot, envelope.name_request());
    case wire::Envelope::kProblem:
      actions_.push_back(Tell{std::format("{}: {}", Place(slot), envelope.problem().text())});
      return;
    case wire::Envelope::kSourceReady:
      if (!move || envelope.source_ready().candidate_attempt() != move->candidate.attempt)
        return Stale(message, "of another attempt");
      return OnSourceReady(*move, envelope.source_ready());
    case wire::Envelope::kProgress:
      return move ? OnProgress(*move, envelope.progress()) : Stale(message, "of no move");
    case wire::Envelope::kNoticed:
      return OnNoticed(slot, envelope.noticed());
    case wire::Envelope::kArrived:
      if (KnownRank(slot, envelope.arrived().rank())) return OnArrived(envelope.arrived());
      break;
    case wire::Envelope::kChecked:
      if (KnownRank(slot, envelope.checked().rank())) return OnChecked(envelope.checked());
      break;
    case wire::Envelope::kParked:
      if (KnownRank(slot, envelope.parked().rank())) return OnParked(envelope.parked());
      break;
    case wire::Envelope::kDumped:
      if (!move || envelope.dumped().candidate_attempt() != move->candidate.attempt)
        return Stale(message, "of another attempt");
      return OnDumped(*move, envelope.dumped());
    case wire::Envelope::kRunning:
      if (KnownRank(slot, envelope.running().rank())) return OnRunning(envelope.running());
      break;
    case wire::Envelope::kResumed:
      return;
    default:
      break;
  }
  Stale(message, "unexpected");
}

void Coordinator::OnCandidateMessage(Move& move, const ProxyMessage& message) {
  const wire::Envelope& envelope = message.envelope;
  if (envelope.header().migration() != migration_->id ||
      envelope.header().attempt() != move.candidate.attempt)
    return Stale(message, "of another attempt");
  switch (envelope.body_case()) {
    case wire::Envelope::kTargetReady:
      return OnTargetReady(move, envelope.target_ready());
    case wire::Envelope::kImagesHeld:
      return OnImagesHeld(move, envelope.images_held());
    case wire::Envelope::kRestored:
      return OnRestored(move, envelope.restored());
    case wire::Envelope::kProblem:
      actions_.push_back(Tell{std::format("{}: {}", move.to, envelope.problem().text())});
      return;
    case wire::Envelope::kRankExited:
      move.restored = false;  // its images can be restored again
      move.ranks.clear();
      return OnCandidateFailed(move, std::format("the copy of rank {} on {} ended before handover",
                                                 envelope.rank_exited().rank(), move.to));
    default:
      return Stale(message, "unexpected of a candidate");
  }
}

void Coordinator::OnGiverMessage(Move& move, const ProxyMessage& message) {
  const wire::Envelope& envelope = message.envelope;
  switch (envelope.body_case()) {
    case wire::Envelope::kSourceReady:
      if (envelope.source_ready().candidate_attempt() != move.candidate.attempt) break;
      return OnSourceReady(move, envelope.source_ready());
    case wire::Envelope::kDumped:
      if (envelope.dumped().candidate_attempt() != move.candidate.attempt) break;
      return OnDumped(move, envelope.dumped());
    case wire::Envelope::kProgress:
      return OnProgress(move, envelope.progress());
    default:
      break;
  }
  Stale(message, "unexpected of who only gives images");
}

void Coordinator::Stale(const ProxyMessage& message, std::string_view why) {
  ++stale_messages_;
  Log("stale.message", {{"proxy", ToString(message.from)},
                        {"body", static_cast<std::int64_t>(message.envelope.body_case())},
                        {"why", std::string(why)}});
}

void Coordinator::OnEvent(const ProxyLost& lost) {
  const auto found = proxies_.find(lost.proxy);
  if (found == proxies_.end()) return;
  const ProxyRole role = found->second.role;
  if (stage_ == JobStage::kEnding && role == ProxyRole::kSeat && found->second.connected) {
    // Perhaps the cause of all: its ranks' peers may have noticed before its link did.
    actions_.push_back(
        Tell{std::format("{} is lost, too: {}", Place(lost.proxy.slot), lost.reason)});
  }
  if (role == ProxyRole::kFormer || stage_ == JobStage::kEnding) return Forget(lost.proxy);
  Log("proxy.lost", {{"slot", static_cast<std::int64_t>(lost.proxy.slot)},
                     {"node", found->second.node},
                     {"reason", lost.reason}});
  if (role == ProxyRole::kSeat) {
    Forget(lost.proxy);
    return OnSeatLost(lost.proxy.slot, lost.reason);
  }
  const std::string node = found->second.node;
  Forget(lost.proxy);
  for (Move& move : migration_->moves) {
    if (move.candidate == lost.proxy)
      return OnCandidateFailed(move,
                               std::format("the candidate on {} was lost: {}", node, lost.reason));
    if (move.giver == lost.proxy) return OnGiverLost(move, lost.reason);
  }
}

void Coordinator::OnEvent(const TimerExpired& expired) {
  const TimerId& timer = expired.timer;
  switch (timer.kind) {
    case TimerId::Kind::kStart:
      if (stage_ == JobStage::kStarting)
        BeginEnd(1,
                 std::format("the job did not start in time: nothing from {}", SlotsNotLaunched()));
      return;
    case TimerId::Kind::kStep:
      if (!migration_ || migration_->id != timer.migration || migration_->entries != timer.entry)
        return;
      if (IsLateBySlot(migration_->step)) return OnLate();
      if (migration_->step == Step::kReconnect) return OnReconnectLate();
      return Pull(Trigger::kDeadline);
    case TimerId::Kind::kEnd:
      if (stage_ != JobStage::kEnding) return;
      while (!proxies_.empty()) {
        const ProxyId proxy = proxies_.begin()->first;
        actions_.push_back(Tell{std::format(
            "the proxy of slot {} on {} did not leave in time; its remote shell is ended",
            proxy.slot, proxies_.begin()->second.node)});
        Forget(proxy);
      }
      return;
  }
}

void Coordinator::Send(SlotId slot, wire::Envelope envelope) {
  const ProxyId& to = slots_[slot].proxy;
  if (!proxies_.contains(to)) return;  // lost, and what it held is held elsewhere
  wire::Header& header = *envelope.mutable_header();
  header.set_slot(slot);
  header.set_epoch(slots_[slot].epoch);
  if (migration_) header.set_migration(migration_->id);
  header.set_attempt(to.attempt);
  actions_.push_back(SendMessage{to, std::move(envelope)});
}

void Coordinator::SendCandidate(const ProxyId& candidate, wire::Envelope envelope) {
  wire::Header& header = *envelope.mutable_header();
  header.set_slot(candidate.slot);
  header.set_migration(migration_->id);
  header.set_attempt(candidate.attempt);
  actions_.push_back(SendMessage{candidate, std::move(envelope)});
}

void Coordinator::SendGiver(const Move& move, wire::Envelope envelope) {
  if (move.giver == move.source) return Send(move.slot, std::move(envelope));
  SendCandidate(move.giver, std::move(envelope));
}

void Coordinator::SendFormer(const ProxyId& proxy, wire::Envelope envelope) {
  wire::Header& header = *envelope.mutable_header();
  header.set_slot(proxy.slot);
  if (migration_) header.set_migration(migration_->id);
  header.set_attempt(proxy.attempt);
  actions_.push_back(SendMessage{proxy, std::move(envelope)});
}

void Coordinator::SendAllSlots(const wire::Envelope& envelope) {
  for (SlotId slot = 0; slot < slots_.size(); ++slot) Send(slot, envelope);
}

void Coordinator::Log(std::string name, std::vector<std::pair<std::string, Record::Value>> fields) {
  actions_.push_back(Record{std::move(name), std::move(fields)});
}

std::string Coordinator::Place(SlotId slot) const {
  return std::format("slot {} on {}", slot, slots_[slot].node);
}

std::string Coordinator::RanksOf(SlotId slot) const {
  std::string ranks;
  for (RankId rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].slot == slot) ranks += std::format("{}{}", ranks.empty() ? "" : ", ", rank);
  }
  return ranks;
}

std::string Coordinator::SlotsNotLaunched() const {
  std::string places;
  for (SlotId slot = 0; slot < slots_.size(); ++slot) {
    if (!slots_[slot].launched) places += (places.empty() ? "" : ", ") + Place(slot);
  }
  return places;
}

std::string Coordinator::PlaceOfRank(RankId rank) const {
  return std::format("rank {} ({})", rank, Place(ranks_[rank].slot));
}

bool Coordinator::KnownRank(SlotId slot, RankId rank) const {
  return rank < ranks_.size() && ranks_[rank].slot == slot;
}

}  // namespace xmpi::core
