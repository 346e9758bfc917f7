// Invariants: what must hold after every event of a run, whatever fails. Each is one English
// sentence, which is also the beginning of the report when it is broken. It watches and never
// interferes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/ids.h"
#include "core/coordinator.h"
#include "sim/scenario.h"

namespace xmpi::sim {

class Proxy;
class RankProcess;
class World;

class Invariants {
 public:
  explicit Invariants(World* world) : world_(*world) {}

  // Around each event of the coordinator.
  void BeforeEvent(const core::Event& event);
  void AfterEvent(const core::Actions& actions);
  void OnSend(const core::SendMessage& action);
  // After every event of the run.
  void Check();
  // When nothing moves and no fault is pending.
  void CheckAtRest();

  // What the actors do.
  void OnSpeaks(const ProxyId& proxy, const wire::Envelope& envelope);
  void OnRuns(const RankProcess& rank);
  void OnReturned(const RankProcess& rank);
  void OnDump(const RankProcess& rank);
  void OnEndOrdered(const RankProcess& rank);

  // A fault has ended this rank's only holder, or the rank itself: the job may end for it.
  void Excuse(const std::string& why);
  const std::string& excuse() const { return excuse_; }
  // Whoever holds something of a slot is gone, or is taken for dead.
  void OnHolderGone(const ProxyId& proxy, bool at_commit = false);
  void OnRankStruck(const RankProcess& rank, const Fault& fault);
  void OnRankGone(RankId rank);

 private:
  ProxyId SeatOf(RankId rank) const;
  void Lose(RankId rank, const std::string& why);
  bool MayStillServe(const ProxyId& proxy) const;
  bool Exists(RankId rank, const ProxyId* without) const;
  bool ImagesCount(const ProxyId& proxy) const;
  bool IsWhole(const Proxy& proxy) const;
  void CheckFence(const wire::FenceOut& fence);

  World& world_;
  std::map<std::pair<RankId, Epoch>, int> ran_;
  std::map<std::pair<RankId, std::uint64_t>, int> returned_;
  std::map<std::pair<SlotId, Epoch>, ProxyId> speakers_;
  MigrationId last_commit_ = 0;
  bool doomed_ = false;                // a rank is lost
  std::map<SlotId, Epoch> committed_;  // behind the first fence that its ranks joined in it
  std::string stale_;                  // why the event under way is stale
  std::string state_before_;
  std::string excuse_;
  std::size_t size_at_rest_ = 0;
};

}  // namespace xmpi::sim
