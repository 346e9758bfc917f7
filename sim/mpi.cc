#include "sim/mpi.h"

#include <algorithm>
#include <format>

#include "sim/rank_process.h"
#include "sim/world.h"

namespace xmpi::sim {

Mpi::Mpi(World* world, int ranks) : world_(*world), endpoints_(ranks) {}

std::vector<RankId> Mpi::NeighboursOf(RankId rank) const {
  const auto size = static_cast<RankId>(endpoints_.size());
  if (size == 1) return {};
  if (size == 2) return {1 - rank};
  return {(rank + size - 1) % size, (rank + 1) % size};
}

void Mpi::Open(RankProcess* process, const std::string& address) {
  Endpoint& endpoint = endpoints_[process->rank()];
  if (process->model().epoch < endpoint.epoch) return;  // thawed too late: nobody asks for it
  endpoint.process = process;
  endpoint.address = address;
  endpoint.epoch = process->model().epoch;
}

void Mpi::Close(RankProcess* process) {
  Endpoint& endpoint = endpoints_[process->rank()];
  if (endpoint.process != process) return;
  endpoint.process = nullptr;
  endpoint.address.clear();
  for (auto& [id, inside] : barriers_) std::erase(inside, process);
}

void Mpi::Send(RankProcess* from, std::uint64_t step) {
  std::uint64_t& sent = endpoints_[from->rank()].sent;
  if (step != sent + 1)
    return world_.Violate(std::format("No step of a rank runs twice: rank {} does step {} after {}",
                                      from->rank(), step, sent));
  sent = step;
  for (const RankId peer : NeighboursOf(from->rank())) {
    const Endpoint& to = endpoints_[peer];
    const auto known = from->model().addresses.find(peer);
    const bool known_at_all = known != from->model().addresses.end();
    if (known_at_all && to.address.empty()) continue;  // it is dead, and the message lost
    if (!known_at_all || known->second != to.address) {
      world_.Violate(std::format(
          "Messages go to the instance that lives: rank {} sends to {} but rank {} is at {}",
          from->rank(), known_at_all ? known->second : "nowhere", peer,
          to.address.empty() ? "no address" : to.address));
      return;
    }
    if (to.process != nullptr) to.process->OnHalo();
  }
}

bool Mpi::HaloHere(const RankProcess& rank, std::uint64_t step) const {
  return std::ranges::all_of(NeighboursOf(rank.rank()), [&](RankId peer) {
    const Endpoint& from = endpoints_[peer];
    // What was sent before the sender ended still arrives.
    return from.sent >= step &&
           (from.process == nullptr || CanTalk(rank.node(), from.process->node()));
  });
}

void Mpi::EnterBarrier(RankProcess* rank, Generation generation, std::uint32_t n) {
  std::vector<RankProcess*>& inside = barriers_[{generation, n}];
  inside.push_back(rank);
  if (inside.size() < endpoints_.size()) return;
  for (RankProcess* each : inside) EndBarrier(each->rank(), each->instance());
  barriers_.erase({generation, n});
}

void Mpi::EndBarrier(RankId rank, int instance) {
  const bool all_talk = std::ranges::all_of(endpoints_, [&](const Endpoint& a) {
    return std::ranges::all_of(endpoints_, [&](const Endpoint& b) {
      return a.process != nullptr && b.process != nullptr &&
             CanTalk(a.process->node(), b.process->node());
    });
  });
  const Time delay = all_talk ? world_.app().Between(100, 3 * kMs) : 50 * kMs;
  world_.queue().After(delay, [this, rank, instance, all_talk] {
    RankProcess* process = endpoints_[rank].process;
    if (process == nullptr || process->instance() != instance) return;
    if (!all_talk) return EndBarrier(rank, instance);
    process->OnBarrierEnd();
  });
}

}  // namespace xmpi::sim
