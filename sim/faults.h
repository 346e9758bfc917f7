// Faults: what a scenario breaks, and when. It watches the coordinator enter phases, lets faults
// strike, hands out the failures of work, and counts each hit by phase and kind.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "core/phase.h"
#include "sim/node.h"
#include "sim/random.h"
#include "sim/scenario.h"

namespace xmpi::sim {

class Proxy;
class RankProcess;
class World;

// Hits by phase and kind.
using Histogram = std::array<std::array<std::uint64_t, kFaultKinds>, core::kPhases>;

class Faults {
 public:
  Faults(World* world, Random random);

  // After each event of the coordinator: has it entered a phase?
  void AfterEvent();
  // A fault that waits for work of this kind on this node, if there is one; it is used up.
  std::optional<Fault> TakeWork(FaultKind kind, const Node& node);
  // No further fault begins; what lasts is ended.
  void End();
  bool over() const { return over_ && lasting_ == 0; }

  const Histogram& hits() const { return hits_; }
  // The phase now, if a migration is under way.
  std::optional<core::Phase> phase() const { return phase_; }
  bool reached_handover() const { return handovers_ > 0; }

 private:
  void Enter(core::Phase phase);
  void Strike(const Fault& fault);
  bool StrikeNode(const Fault& fault, Node& node);
  bool StrikeOrder(const Fault& fault);
  void CountHit(const Fault& fault);
  void Lasts(Time duration, std::function<void()> end);
  Node* NodeOf(Victim victim);
  std::shared_ptr<Proxy> ProxyOf(Victim victim);
  RankProcess* RankOf(Victim victim);

  World& world_;
  Random random_;
  std::vector<Fault> waiting_;  // for their phase
  std::vector<Fault> for_work_;
  std::optional<core::Phase> phase_;
  std::optional<core::Phase> struck_in_;
  std::map<SlotId, Epoch> epochs_;
  int migrations_ = 0;
  int handovers_ = 0;
  int lasting_ = 0;
  bool over_ = false;
  Histogram hits_{};
};

}  // namespace xmpi::sim
