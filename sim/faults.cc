#include "sim/faults.h"

#include <algorithm>

#include "sim/world.h"

namespace xmpi::sim {

using core::Phase;

Faults::Faults(World* world, Random random) : world_(*world), random_(random) {
  for (const Fault& fault : world_.scenario().faults)
    (StrikesWork(fault.kind) ? for_work_ : waiting_).push_back(fault);
}

void Faults::AfterEvent() {
  const core::Coordinator& coordinator = world_.launcher().coordinator();
  const auto& migration = coordinator.migration();
  bool handed_over = false;
  for (SlotId slot = 0; slot < coordinator.slots().size(); ++slot) {
    Epoch& known = epochs_[slot];
    const Epoch now = coordinator.slots()[slot].epoch;
    if (known != 0 && now > known && migration) handed_over = true;
    known = now;
  }
  migrations_ = static_cast<int>(coordinator.migrations());
  std::optional<Phase> phase;
  if (migration) phase = PhaseOf(migration->step);
  const bool entered = phase && phase != phase_;
  phase_ = phase;
  if (handed_over) {
    ++handovers_;
    struck_in_ = Phase::kHandover;
    Enter(Phase::kHandover);
    struck_in_.reset();
  }
  if (entered) Enter(*phase);
}

void Faults::Enter(Phase phase) {
  if (over_) return;
  std::vector<Fault> now;
  std::erase_if(waiting_, [&](const Fault& fault) {
    const bool strikes = fault.phase == phase && fault.migration == migrations_;
    if (strikes) now.push_back(fault);
    return strikes;
  });
  for (const Fault& fault : now) {
    if (phase == Phase::kHandover) {
      Strike(fault);
    } else {
      Lasts(fault.after, [this, fault] { Strike(fault); });
    }
  }
}

void Faults::Lasts(Time duration, std::function<void()> end) {
  ++lasting_;
  world_.queue().After(duration, [this, end = std::move(end)] {
    --lasting_;
    end();
  });
}

std::optional<Fault> Faults::TakeWork(FaultKind kind, const Node&) {
  if (over_) return std::nullopt;
  const auto found = std::ranges::find_if(for_work_, [&](const Fault& fault) {
    return fault.kind == kind && fault.migration <= migrations_;
  });
  if (found == for_work_.end()) return std::nullopt;
  const Fault fault = *found;
  for_work_.erase(found);
  world_.Say("FAULT", "{}", Describe(fault));
  // Work begins in its phase or just before the launcher hears of it.
  ++hits_[static_cast<int>(fault.phase)][static_cast<int>(kind)];
  return fault;
}

void Faults::End() {
  over_ = true;
  waiting_.clear();
  for_work_.clear();
}

void Faults::CountHit(const Fault& fault) {
  const auto phase = struck_in_ ? struck_in_ : phase_;
  if (phase) ++hits_[static_cast<int>(*phase)][static_cast<int>(fault.kind)];
}

Node* Faults::NodeOf(Victim victim) {
  const auto proxy = ProxyOf(victim);
  return proxy ? &proxy->node() : nullptr;
}

// The move that is (or was) under way decides who is source and target; else any slot will do.
std::shared_ptr<Proxy> Faults::ProxyOf(Victim victim) {
  const core::Coordinator& coordinator = world_.launcher().coordinator();
  const auto& migration = coordinator.migration();
  if (migration && victim != Victim::kStaying) {
    const core::Move& move = migration->moves[random_.Below(migration->moves.size())];
    const auto target = world_.FindProxy(move.candidate);
    // A target that is not there yet cannot be struck.
    if (victim == Victim::kTarget && target && target->alive()) return target;
    return world_.FindProxy(move.source);
  }
  std::vector<ProxyId> seats;
  for (SlotId slot = 0; slot < coordinator.slots().size(); ++slot) {
    const bool moves =
        migration && std::ranges::any_of(migration->moves,
                                         [&](const core::Move& move) { return move.slot == slot; });
    if (!moves) seats.push_back(coordinator.slots()[slot].proxy);
  }
  if (seats.empty()) return nullptr;
  return world_.FindProxy(seats[random_.Below(seats.size())]);
}

RankProcess* Faults::RankOf(Victim victim) {
  auto proxy = ProxyOf(victim);
  if (proxy && proxy->ranks().empty()) proxy = ProxyOf(Victim::kSource);
  if (!proxy || !proxy->alive() || proxy->ranks().empty()) return nullptr;
  auto it = proxy->ranks().begin();
  std::advance(it, random_.Below(proxy->ranks().size()));
  return it->second->alive() ? it->second.get() : nullptr;
}

void Faults::Strike(const Fault& fault) {
  if (over_ || !world_.launcher().alive() || world_.launcher().ended()) return;
  world_.Say("FAULT", "{}", Describe(fault));
  switch (fault.kind) {
    case FaultKind::kCrashLauncher:
      CountHit(fault);
      world_.invariants().Excuse("the launcher has crashed");
      return world_.launcher().Crash();
    case FaultKind::kDelay:
      CountHit(fault);
      world_.network().slow_until = world_.now() + fault.duration;
      return Lasts(fault.duration, [] {});
    case FaultKind::kCrashRank:
    case FaultKind::kStallRank: {
      RankProcess* rank = RankOf(fault.victim);
      if (rank == nullptr) return;
      CountHit(fault);
      world_.Say("FAULT", "rank {} instance {}", rank->rank(), rank->instance());
      world_.invariants().OnRankStruck(*rank, fault);
      if (fault.kind == FaultKind::kCrashRank) {
        const bool can_exit = rank->parked() && !rank->stopped();
        can_exit&& fault.after % 2 == 1 ? rank->ExitWell() : rank->proxy().CrashRank(*rank);
        return world_.invariants().OnRankGone(rank->rank());
      }
      rank->StallUntil(world_.now() + fault.duration);
      return Lasts(fault.duration, [] {});
    }
    default:
      break;
  }
  if (StrikeOrder(fault)) return;
  Node* node = NodeOf(fault.victim);
  if (node == nullptr || !node->up()) return;
  world_.Say("FAULT", "on {}", node->name());
  if (StrikeNode(fault, *node)) CountHit(fault);
}

bool Faults::StrikeNode(const Fault& fault, Node& node) {
  const Time until = world_.now() + fault.duration;
  switch (fault.kind) {
    case FaultKind::kCutLink: {
      const auto proxy = ProxyOf(fault.victim);
      if (!proxy || !proxy->alive()) return false;
      proxy->link().Cut(fault.duration);
      Lasts(fault.duration, [] {});
      return true;
    }
    case FaultKind::kCrashProxy: {
      const auto proxy = ProxyOf(fault.victim);
      if (!proxy || !proxy->alive()) return false;
      proxy->Die("kill -9");
      return true;
    }
    case FaultKind::kSilence:
    case FaultKind::kLongSilence:
    case FaultKind::kFreeze:
      if (fault.kind == FaultKind::kFreeze)
        node.FreezeUntil(until);
      else
        node.SilenceUntil(until);
      for (const auto& [id, proxy] : world_.proxies()) {
        const bool noticed = fault.kind != FaultKind::kFreeze || fault.duration > 3 * kSecond;
        if (&proxy->node() == &node && proxy->alive() && noticed) proxy->link().OnSilence();
      }
      Lasts(fault.duration, [] {});
      return true;
    case FaultKind::kCrashHost:
      world_.CrashNode(node);
      return true;
    case FaultKind::kRebootHost:
      world_.CrashNode(node);
      Lasts(fault.duration, [&node] { node.Boot(); });
      return true;
    default:
      return false;
  }
}

bool Faults::StrikeOrder(const Fault& fault) {
  const core::Coordinator& coordinator = world_.launcher().coordinator();
  const auto& migration = coordinator.migration();
  switch (fault.kind) {
    case FaultKind::kCancel:
      CountHit(fault);
      world_.operations().Cancel();
      return true;
    case FaultKind::kSameOrder:
    case FaultKind::kTargetOrder:
      if (!migration) return true;
      CountHit(fault);
      world_.operations().Order(fault.kind == FaultKind::kSameOrder ? migration->moves.front().from
                                                                    : migration->moves.front().to,
                                false);
      return true;
    case FaultKind::kCrossingOrder:
    case FaultKind::kUrgentOrder:
      CountHit(fault);
      world_.operations().Order(coordinator.slots()[random_.Below(coordinator.slots().size())].node,
                                fault.kind == FaultKind::kUrgentOrder);
      return true;
    default:
      return false;
  }
}

}  // namespace xmpi::sim
