// Mpi: what the ranks do with each other behind our back: halo messages between neighbours, so that
// no rank gets more than a step ahead of the next, and the barrier of the check. It knows which
// instance of a rank has which address, and tells the invariants when somebody uses a dead one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "sim/event_queue.h"

namespace xmpi::sim {

class RankProcess;
class World;

class Mpi {
 public:
  Mpi(World* world, int ranks);

  std::vector<RankId> NeighboursOf(RankId rank) const;

  // The process opens a session: under this address others may reach it.
  void Open(RankProcess* process, const std::string& address);
  void Close(RankProcess* process);
  const std::string& AddressOf(RankId rank) const { return endpoints_[rank].address; }

  // The halo of step `step`, sent to both neighbours under the addresses that the sender knows.
  void Send(RankProcess* from, std::uint64_t step);
  // Whether the neighbours' halos of that step are here. Whoever waits is told when one comes.
  bool HaloHere(const RankProcess& rank, std::uint64_t step) const;

  // The n-th barrier of the session that opened with `generation`; each rank is told of its end.
  void EnterBarrier(RankProcess* rank, Generation generation, std::uint32_t n);

 private:
  struct Endpoint {
    RankProcess* process = nullptr;
    std::string address;
    Epoch epoch = 0;
    std::uint64_t sent = 0;  // steps
  };

  void EndBarrier(RankId rank, int instance);

  World& world_;
  std::vector<Endpoint> endpoints_;
  std::map<std::pair<Generation, std::uint32_t>, std::vector<RankProcess*>> barriers_;
};

}  // namespace xmpi::sim
