#include "core/coordinator.h"

#include <format>

namespace xmpi::core {
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
  if (Move* move = FindMove(&Move::candidate, lost.proxy)) {
    OnCandidateFailed(*move, std::format("the candidate on {} was lost: {}", node, lost.reason));
  } else if (Move* move = FindMove(&Move::giver, lost.proxy)) {
    OnGiverLost(*move, lost.reason);
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
      if (IsReopening(migration_->step)) return OnReconnectLate();
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
