#include "sim/invariants.h"

#include <algorithm>
#include <format>
#include <utility>

#include "sim/world.h"

namespace xmpi::sim {
namespace {

// All that a message could change in the coordinator, as text.
std::string StateOf(const core::Coordinator& coordinator) {
  std::string state = std::format("stage {}\n", static_cast<int>(coordinator.stage()));
  for (const core::SlotState& slot : coordinator.slots())
    state += std::format("slot {} {} {} {}\n", slot.node, ToString(slot.proxy), slot.epoch,
                         slot.launched);
  for (const core::RankState& rank : coordinator.ranks())
    state += std::format("rank {}{}{}\n", rank.hello, rank.finalizing, rank.exited);
  for (const auto& [id, proxy] : coordinator.proxies())
    state += std::format("proxy {} {}\n", ToString(id), static_cast<int>(proxy.role));
  const auto& migration = coordinator.migration();
  if (!migration) return state;
  state +=
      std::format("migration {} {} {}\n", migration->id, Name(migration->step), migration->failure);
  for (const core::Move& move : migration->moves)
    state += std::format("move {} {}{}{}{}{}{}{}{}\n", ToString(move.candidate), move.target_ready,
                         move.source_ready, move.dumped, move.held, move.drained, move.restored,
                         move.left, move.originals_lost);
  for (const core::RankProgress& rank : migration->ranks)
    state += std::format("progress {}{}{}{}{} {}\n", rank.noticed, rank.arrived, rank.checked,
                         rank.parked, rank.running, rank.passed);
  return state;
}

// What the giver of images says is about one candidate.
std::string WhyStaleOfGiver(const core::Coordinator& coordinator,
                            const core::ProxyMessage& message) {
  const wire::Envelope& envelope = message.envelope;
  if (!envelope.has_source_ready() && !envelope.has_dumped()) return "";
  const AttemptId attempt = envelope.has_dumped() ? envelope.dumped().candidate_attempt()
                                                  : envelope.source_ready().candidate_attempt();
  const bool current =
      std::ranges::any_of(coordinator.migration()->moves, [&](const core::Move& move) {
        const bool goes = !move.left || move.rescued;
        return move.slot == message.from.slot && goes && move.candidate.attempt == attempt;
      });
  return current ? "" : "of another attempt";
}

// Why this message must not be acted on, told from its header and the roles alone; empty: it may.
std::string WhyStale(const core::Coordinator& coordinator, const core::ProxyMessage& message) {
  const wire::Header& header = message.envelope.header();
  const auto body = message.envelope.body_case();
  if (body == wire::Envelope::kLeaving || body == wire::Envelope::kProxyHello) return "";
  const auto& migration = coordinator.migration();
  const bool of_a_migration =
      body >= wire::Envelope::kPrepareTarget && body <= wire::Envelope::kRelease;
  if (of_a_migration && (!migration || migration->id != header.migration()))
    return "of another migration";
  const core::SlotState& slot = coordinator.slots().at(message.from.slot);
  if (slot.proxy == message.from) {
    if (header.epoch() != slot.epoch) return "of another epoch";
    return WhyStaleOfGiver(coordinator, message);
  }
  const auto known = coordinator.proxies().find(message.from);
  if (known == coordinator.proxies().end()) return "of a proxy that is gone";
  const core::ProxyRole role = known->second.role;
  const auto is_his = [&](const core::Move& move) {
    const bool original_ended = move.source == message.from && message.envelope.has_rank_exited();
    const bool current = move.candidate == message.from && role == core::ProxyRole::kCandidate;
    return current || (!move.left && original_ended);
  };
  if (migration && std::ranges::any_of(migration->moves, is_his)) return "";
  const bool gives =
      migration && std::ranges::any_of(migration->moves, [&](const core::Move& move) {
        return move.giver == message.from;
      });
  if (gives) return WhyStaleOfGiver(coordinator, message);
  return "of another attempt";
}

}  // namespace

void Invariants::BeforeEvent(const core::Event& event) {
  stale_.clear();
  const auto* message = std::get_if<core::ProxyMessage>(&event);
  if (message == nullptr) return;
  const core::Coordinator& coordinator = world_.launcher().coordinator();
  stale_ = WhyStale(coordinator, *message);
  if (!stale_.empty()) state_before_ = StateOf(coordinator);
}

void Invariants::AfterEvent(const core::Actions& actions) {
  const core::Coordinator& coordinator = world_.launcher().coordinator();
  if (coordinator.migration() && coordinator.migration()->fence_opened) {
    for (SlotId slot = 0; slot < coordinator.slots().size(); ++slot) {
      committed_[slot] = coordinator.slots()[slot].epoch;
      // A holder that crashed behind its last word before the commit was the only one from then on.
      if (last_commit_ != coordinator.migration()->id) OnHolderGone({.slot = slot}, true);
    }
    last_commit_ = coordinator.migration()->id;
  }
  if (stale_.empty()) return;
  const std::string state = StateOf(coordinator);
  const bool silent = std::ranges::all_of(actions, [](const core::Action& action) {
    return std::holds_alternative<core::Record>(action);
  });
  if (state != state_before_ || !silent)
    world_.Violate(std::format("No stale message changes state: it is {}\nbefore:\n{}after:\n{}",
                               stale_, state_before_, state));
}

void Invariants::OnSend(const core::SendMessage& action) {
  if (action.envelope.has_fence_out()) CheckFence(action.envelope.fence_out());
}

void Invariants::CheckFence(const wire::FenceOut& fence) {
  const core::Coordinator& coordinator = world_.launcher().coordinator();
  for (const core::SlotState& slot : coordinator.slots()) {
    const auto proxy = world_.FindProxy(slot.proxy);
    if (!proxy) continue;
    for (const auto& [rank, process] : proxy->ranks()) {
      const RankModel& model = process->model();
      const bool inside = model.generation == fence.generation() && model.fences >= fence.number();
      if (inside || !process->alive()) continue;
      return world_.Violate(
          std::format("A fence opens only when its generation is complete: fence {} of generation "
                      "{} opens, but rank {} has only entered fence {} of generation {}",
                      fence.number(), fence.generation(), rank, model.fences, model.generation));
    }
  }
}

void Invariants::OnSpeaks(const ProxyId& proxy, const wire::Envelope& envelope) {
  const wire::Header& header = envelope.header();
  if (header.epoch() == 0) return;
  const auto [speaker, fresh] = speakers_.try_emplace({proxy.slot, header.epoch()}, proxy);
  if (!fresh && speaker->second != proxy)
    world_.Violate(std::format("One proxy speaks for a slot in an epoch: {} and {} do in epoch {}",
                               ToString(speaker->second), ToString(proxy), header.epoch()));
}

void Invariants::OnRuns(const RankProcess& rank) {
  const auto [first, fresh] = ran_.try_emplace({rank.rank(), rank.model().epoch}, rank.instance());
  if (!fresh && first->second != rank.instance())
    world_.Violate(std::format(
        "At most one of a rank's original and copies runs in an epoch: instances {} and {} of rank "
        "{} do in epoch {}",
        first->second, rank.instance(), rank.rank(), rank.model().epoch));
}

void Invariants::OnReturned(const RankProcess& rank) {
  const auto [first, fresh] =
      returned_.try_emplace({rank.rank(), rank.model().passed}, rank.instance());
  if (!fresh)
    world_.Violate(std::format(
        "A call of XMPI_Quiesce returns once: call {} of rank {} does in instance {} and in {}",
        rank.model().passed, rank.rank(), first->second, rank.instance()));
}

void Invariants::OnDump(const RankProcess& rank) {
  if (rank.unread() != 0)
    return world_.Violate(std::format(
        "Nothing is sent to a parked rank until it is restored or continued: rank {} has {} unread",
        rank.rank(), rank.unread()));
  const core::Coordinator& coordinator = world_.launcher().coordinator();
  const auto& migration = coordinator.migration();
  if (!migration || migration->step >= core::Step::kReconnect) return;  // withdrawn in the meantime
  for (const core::SlotState& slot : coordinator.slots()) {
    const auto proxy = world_.FindProxy(slot.proxy);
    if (!proxy || !proxy->alive()) continue;
    for (const auto& [other, process] : proxy->ranks()) {
      if (process->alive() && !process->parked())
        return world_.Violate(std::format(
            "A rank is dumped only when all are parked: rank {} is, while rank {} is {}",
            rank.rank(), other, Name(process->model().place)));
    }
  }
}

// An instance may be ended by an order only when the job ends or another one holds its rank; and an
// original only behind the commit point.
void Invariants::OnEndOrdered(const RankProcess& rank) {
  const core::Coordinator& coordinator = world_.launcher().coordinator();
  if (!world_.launcher().alive() || coordinator.stage() >= core::JobStage::kEnding) return;
  const core::SlotState& slot = coordinator.slots()[coordinator.ranks()[rank.rank()].slot];
  const auto seat = world_.FindProxy(slot.proxy);
  const auto found = seat ? seat->ranks().find(rank.rank()) : decltype(seat->ranks().end()){};
  const bool other = seat && found != seat->ranks().end() && found->second.get() != &rank;
  if (!other)
    return world_.Violate(
        std::format("No order ends a rank's only instance: instance {} of rank {} is ended",
                    rank.instance(), rank.rank()));
  const bool is_original = rank.model().epoch + 1 == slot.epoch;
  const auto found_epoch = committed_.find(coordinator.ranks()[rank.rank()].slot);
  const bool committed = found_epoch != committed_.end() && found_epoch->second == slot.epoch;
  if (is_original && rank.instance() < found->second->instance() && !committed &&
      found->second->alive() && !found->second->stopped() && rank.parked())
    world_.Violate(std::format(
        "Originals are kept until the copies' first fence has opened: instance {} of rank {} is "
        "ended before",
        rank.instance(), rank.rank()));
}

// What a released or discarded proxy holds is on its way out, and no place to be.
bool Invariants::MayStillServe(const ProxyId& proxy) const {
  const core::Coordinator& coordinator = world_.launcher().coordinator();
  const auto found = coordinator.proxies().find(proxy);
  if (found == coordinator.proxies().end()) return false;
  if (found->second.role != core::ProxyRole::kFormer) return true;
  const auto& migration = coordinator.migration();
  return migration && migration->step >= core::Step::kReconnect && !migration->fence_opened &&
         std::ranges::any_of(migration->moves, [&](const core::Move& move) {
           return move.source == proxy && !move.left && !move.rescued;
         });
}

bool Invariants::Exists(RankId rank, const ProxyId* without) const {
  const SlotId slot = world_.launcher().coordinator().ranks()[rank].slot;
  return std::ranges::any_of(world_.proxies(), [&](const auto& each) {
    const auto& [id, proxy] = each;
    if (id.slot != slot || !proxy->alive() || (without && id == *without)) return false;
    if (!MayStillServe(id)) return false;
    if (proxy->holds_images() && !proxy->leaving() && ImagesCount(id)) return true;
    return proxy->ranks().contains(rank) && IsWhole(*proxy);
  });
}

// Images count until the fence has opened behind which their ranks go on.
bool Invariants::ImagesCount(const ProxyId& proxy) const {
  const core::Coordinator& coordinator = world_.launcher().coordinator();
  const core::ProxyRole role = coordinator.proxies().at(proxy).role;
  if (role != core::ProxyRole::kSeat)
    return role == core::ProxyRole::kCandidate || role == core::ProxyRole::kGiver;
  const auto& migration = coordinator.migration();
  return migration && migration->step >= core::Step::kReconnect && !migration->fence_opened &&
         std::ranges::any_of(migration->moves, [&](const core::Move& move) {
           return move.candidate == proxy && move.moved;
         });
}

// A slot goes on as a whole: half of its originals and the other half of its copies are no slot.
bool Invariants::IsWhole(const Proxy& proxy) const {
  const auto& ranks = world_.launcher().coordinator().ranks();
  return std::ranges::all_of(proxy.ranks(), [&](const auto& each) {
    return each.second->alive() || ranks[each.first].exited;
  });
}

void Invariants::OnHolderGone(const ProxyId& proxy, bool at_commit) {
  const auto& ranks = world_.launcher().coordinator().ranks();
  for (RankId rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].slot != proxy.slot || ranks[rank].exited ||
        Exists(rank, at_commit ? nullptr : &proxy))
      continue;
    Lose(rank, std::format("nobody else holds it than {}", ToString(proxy)));
  }
}

void Invariants::OnRankStruck(const RankProcess& rank, const Fault& fault) {
  if (fault.kind == FaultKind::kStallRank) {
    if (fault.duration > 10 * kSecond) Excuse("a rank stood still for longer than a deadline");
    return;
  }
  const core::Coordinator& coordinator = world_.launcher().coordinator();
  const auto& migration = coordinator.migration();
  const SlotId slot = coordinator.ranks()[rank.rank()].slot;
  const bool uncommitted =
      migration && migration->step >= core::Step::kReconnect && !migration->fence_opened &&
      std::ranges::any_of(migration->moves,
                          [&](const core::Move& move) { return move.slot == slot && move.moved; });
  const bool ran = !rank.parked() && rank.proxy().id() == SeatOf(rank.rank());
  if (ran && !uncommitted) Excuse(std::format("rank {} has crashed", rank.rank()));
}

void Invariants::OnRankGone(RankId rank) {
  if (!Exists(rank, nullptr)) Lose(rank, "it has crashed and is nowhere else");
}

void Invariants::Lose(RankId rank, const std::string& why) {
  doomed_ = true;
  Excuse(std::format("rank {}: {}", rank, why));
}

ProxyId Invariants::SeatOf(RankId rank) const {
  const core::Coordinator& coordinator = world_.launcher().coordinator();
  return coordinator.slots()[coordinator.ranks()[rank].slot].proxy;
}

void Invariants::Excuse(const std::string& why) {
  if (!excuse_.empty()) return;
  excuse_ = why;
  world_.Say("-", "from here on the job may end: {}", why);
}

void Invariants::Check() {
  const core::Coordinator& coordinator = world_.launcher().coordinator();
  if (coordinator.stage() != core::JobStage::kRunning || !world_.launcher().alive()) return;
  if (doomed_) return;  // one rank is gone for good: where the others are decides nothing
  for (RankId rank = 0; rank < coordinator.ranks().size(); ++rank) {
    if (coordinator.ranks()[rank].exited || Exists(rank, nullptr)) continue;
    if (coordinator.ranks()[rank].finalizing || world_.last_call() != UINT64_MAX) continue;
    return world_.Violate(std::format(
        "A rank always exists somewhere unless its only holder crashed: rank {} does not", rank));
  }
}

void Invariants::CheckAtRest() {
  const core::Coordinator& coordinator = world_.launcher().coordinator();
  std::size_t size = coordinator.StateSize();
  for (const core::SlotState& slot : coordinator.slots())
    size += world_.FindProxy(slot.proxy)->agent().StateSize();
  if (size_at_rest_ == 0) size_at_rest_ = size;
  if (size != size_at_rest_)
    world_.Violate(std::format("State does not grow with the number of moves: {} after {}", size,
                               size_at_rest_));
}

}  // namespace xmpi::sim
