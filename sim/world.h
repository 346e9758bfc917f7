// World: one run of a scenario. It owns time, hosts, the launcher, the proxies and all that watches
// them, runs event after event until the job has ended or an invariant is broken, and says which.
#pragma once

#include <cstdint>
#include <format>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/event_queue.h"
#include "sim/faults.h"
#include "sim/invariants.h"
#include "sim/launcher.h"
#include "sim/link.h"
#include "sim/mpi.h"
#include "sim/node.h"
#include "sim/operations.h"
#include "sim/proxy.h"
#include "sim/random.h"
#include "sim/scenario.h"

namespace xmpi::sim {

struct RunResult {
  std::string violation;   // empty: every invariant held
  std::string transcript;  // when asked for
  bool reached_handover = false;
  bool job_survived = false;  // it came to its own end
  int moves_done = 0;
  std::uint64_t events = 0;
  Time simulated = 0;
  Histogram hits{};
};

class World {
 public:
  World(Scenario scenario, bool tracing);
  ~World();
  World(const World&) = delete;

  RunResult Run();

  // For the actors.
  const Scenario& scenario() const { return scenario_; }
  EventQueue& queue() { return queue_; }
  Time now() const { return queue_.now(); }
  Network& network() { return network_; }
  Random& app() { return app_; }
  Random& work() { return work_; }
  Launcher& launcher() { return launcher_; }
  Mpi& mpi() { return mpi_; }
  Invariants& invariants() { return invariants_; }
  Faults& faults() { return faults_; }
  Operations& operations() { return operations_; }
  Node& node(const std::string& name) { return *nodes_.at(name); }
  const std::vector<std::string>& node_names() const { return node_names_; }

  void StartProxyProcess(const ProxyId& id, Node* node, std::shared_ptr<Link> link);
  std::shared_ptr<Proxy> FindProxy(const ProxyId& id) const;
  const std::map<ProxyId, std::shared_ptr<Proxy>>& proxies() const { return proxies_; }
  void OnProxyGone(Proxy& proxy, const std::string& why);
  void OnHolderUnheard(const ProxyId& proxy) { invariants_.OnHolderGone(proxy); }
  void CrashNode(Node& node);
  int NextInstance() { return ++instances_; }
  std::optional<Fault> TakeWorkFault(FaultKind kind, const Node& node) {
    return faults_.TakeWork(kind, node);
  }
  // The program ends after this call of XMPI_Quiesce.
  std::uint64_t last_call() const { return last_call_; }

  void Violate(std::string sentence);

  bool tracing() const { return tracing_; }
  template <class... Args>
  void Say(std::string_view who, std::format_string<Args...> text, Args&&... args) {
    if (tracing_) Line(who, std::format(text, std::forward<Args>(args)...));
  }

 private:
  enum class Stage { kStarting, kMoving, kSettling, kEnding };

  static core::JobPlan MakePlan(const Scenario& scenario);
  void MakeNodes();
  void Look();  // now and then: what the run waits for
  bool AtRest() const;
  bool EveryRankRuns();
  void Finish();
  bool Over() const;
  void Line(std::string_view who, const std::string& text);

  const Scenario scenario_;
  const bool tracing_;
  std::string transcript_;
  std::string violation_;

  EventQueue queue_;
  Network network_;
  Random app_;
  Random work_;
  std::vector<std::string> node_names_;
  std::map<std::string, std::unique_ptr<Node>> nodes_;
  Launcher launcher_;
  std::map<ProxyId, std::shared_ptr<Proxy>> proxies_;
  Mpi mpi_;
  Invariants invariants_;
  Faults faults_;
  Operations operations_;

  Stage stage_ = Stage::kStarting;
  int instances_ = 0;
  std::uint64_t last_call_ = UINT64_MAX;
  std::uint64_t highest_call_ = 0;
  std::uint64_t calls_at_rest_ = 0;  // that every rank must pass to prove that it runs
  bool last_move_ordered_ = false;
  Time over_since_ = 0;
};

}  // namespace xmpi::sim
