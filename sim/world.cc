#include "sim/world.h"

#include <algorithm>
#include <utility>

namespace xmpi::sim {
namespace {

constexpr Time kLook = 250 * kMs;
// From the end of faults to rest: every deadline of a migration once over, and some.
constexpr Time kPatience = 300 * kSecond;
constexpr std::uint64_t kMaxEvents = 2'000'000;

}  // namespace

World::World(Scenario scenario, bool tracing)
    : scenario_(std::move(scenario)),
      tracing_(tracing),
      network_{.queue = &queue_, .random = Random(scenario_.seed).Fork(2)},
      app_(Random(scenario_.seed).Fork(3)),
      work_(Random(scenario_.seed).Fork(4)),
      launcher_(this, MakePlan(scenario_)),
      mpi_(this, scenario_.slots * scenario_.ranks_per_slot),
      invariants_(this),
      faults_(this, Random(scenario_.seed).Fork(5)),
      operations_(this, Random(scenario_.seed).Fork(6)) {
  MakeNodes();
}

World::~World() = default;

// Deadlines longer than link_timeout, so that a dead peer is found by its link and not by them.
core::JobPlan World::MakePlan(const Scenario& scenario) {
  using std::chrono::seconds;
  core::JobPlan plan;
  plan.job = "sim";
  RankId rank = 0;
  for (int slot = 0; slot < scenario.slots; ++slot) {
    core::SlotPlan each;
    each.node = std::format("node{}", scenario.share_node ? std::max(0, slot - 1) : slot);
    for (int i = 0; i < scenario.ranks_per_slot; ++i) each.ranks.emplace_back().set_rank(rank++);
    plan.slots.push_back(std::move(each));
  }
  for (int spare = 0; spare < scenario.spares; ++spare)
    plan.spares.push_back(std::format("spare{}", spare));
  plan.universe_size = static_cast<int>(rank);
  plan.process_mapping = std::format("(vector,(0,{},{}))", scenario.slots, scenario.ranks_per_slot);
  plan.timeouts = {.start = seconds(40),
                   .prepare = seconds(16),
                   .quiesce = seconds(24),
                   .check = seconds(18),
                   .park = seconds(18),
                   .dump = seconds(16),
                   .transfer = seconds(16),
                   .restore = seconds(16),
                   .reconnect = seconds(20),
                   .end = seconds(6)};
  return plan;
}

void World::MakeNodes() {
  const core::JobPlan& plan = launcher_.coordinator().plan();
  const auto add = [&](const std::string& name) {
    if (nodes_.contains(name)) return;
    node_names_.push_back(name);
    nodes_[name] = std::make_unique<Node>(&queue_, name);
  };
  for (const core::SlotPlan& slot : plan.slots) add(slot.node);
  for (const std::string& spare : plan.spares) add(spare);
}

RunResult World::Run() {
  if (tracing_) transcript_ = Describe(scenario_);
  launcher_.Start();
  queue_.After(kLook, [this] { Look(); });
  while (violation_.empty() && !Over() && queue_.RunOne()) {
    invariants_.Check();
    if (queue_.events() > kMaxEvents)
      Violate("Once faults stop, all comes to rest: the events do not end");
  }
  RunResult result{.violation = violation_,
                   .transcript = std::move(transcript_),
                   .reached_handover = faults_.reached_handover(),
                   .job_survived = launcher_.ended() && launcher_.exit_code() == 0,
                   .moves_done = operations_.ok(),
                   .events = queue_.events(),
                   .simulated = queue_.now(),
                   .hits = faults_.hits()};
  return result;
}

// The job has ended, and nothing of it is left on any host that could know.
bool World::Over() const {
  if (!launcher_.ended() && launcher_.alive()) return false;
  return std::ranges::none_of(proxies_, [](const auto& each) { return each.second->alive(); });
}

void World::Look() {
  queue_.After(kLook, [this] { Look(); });
  if (launcher_.ended() || !launcher_.alive()) {
    if (over_since_ == 0) {
      over_since_ = now();
      faults_.End();
    }
    if (launcher_.ended() && launcher_.exit_code() != 0 && invariants_.excuse().empty())
      return Violate(std::format("A job ends only for a fault that leaves it no choice: {}",
                                 launcher_.why_ended()));
    if (now() - over_since_ > 60 * kSecond)
      Violate("When the job has ended, no process of it is left: some proxy lives on");
    return;
  }
  switch (stage_) {
    case Stage::kStarting:
      if (launcher_.coordinator().stage() != core::JobStage::kRunning) return;
      if (!std::ranges::all_of(launcher_.coordinator().ranks(), &core::RankState::hello)) return;
      stage_ = Stage::kMoving;
      return operations_.Begin();
    case Stage::kMoving:
      if (!operations_.done()) return;
      faults_.End();
      stage_ = Stage::kSettling;
      over_since_ = now();
      calls_at_rest_ = 0;
      return;
    case Stage::kSettling:
      if (AtRest() && EveryRankRuns()) return Finish();
      [[fallthrough]];
    case Stage::kEnding:
      if (now() - over_since_ > kPatience)
        Violate(std::format(
            "Once faults stop, the migration ends and every rank runs: {}",
            launcher_.coordinator().migration()
                ? std::format("it is still in {}", Name(launcher_.coordinator().migration()->step))
                : "some rank does not go on"));
  }
}

bool World::AtRest() const {
  const core::Coordinator& coordinator = launcher_.coordinator();
  if (coordinator.migration() || coordinator.stage() != core::JobStage::kRunning) return false;
  return coordinator.proxies().size() == coordinator.slots().size() && faults_.over();
}

// Each must pass two calls more than the foremost had passed when all came to rest.
bool World::EveryRankRuns() {
  std::uint64_t lowest = UINT64_MAX;
  for (const core::SlotState& slot : launcher_.coordinator().slots()) {
    const auto proxy = FindProxy(slot.proxy);
    if (!proxy) return false;
    for (const auto& [rank, process] : proxy->ranks()) {
      lowest = std::min(lowest, process->model().passed);
      highest_call_ = std::max(highest_call_, process->model().passed);
    }
  }
  if (calls_at_rest_ == 0) calls_at_rest_ = highest_call_ + 2;
  return lowest >= calls_at_rest_;
}

// All is well: one more move, or the program comes to its end.
void World::Finish() {
  invariants_.CheckAtRest();
  over_since_ = now();
  calls_at_rest_ = 0;
  if (scenario_.last_move && !std::exchange(last_move_ordered_, true))
    return operations_.OrderLastMove();
  last_call_ = highest_call_ + 2;
  stage_ = Stage::kEnding;
}

void World::StartProxyProcess(const ProxyId& id, Node* node, std::shared_ptr<Link> link) {
  auto proxy = std::make_shared<Proxy>(this, id, node, std::move(link));
  proxies_[id] = proxy;
  proxy->Begin();
}

std::shared_ptr<Proxy> World::FindProxy(const ProxyId& id) const {
  const auto found = proxies_.find(id);
  return found == proxies_.end() ? nullptr : found->second;
}

void World::OnProxyGone(Proxy& proxy, const std::string& why) {
  invariants_.OnHolderGone(proxy.id());
  if (proxy.node().Answers()) launcher_.OnShellEnded(proxy.id(), why);
}

void World::CrashNode(Node& node) {
  Say(node.name(), "crashes");
  node.Crash();
  for (const auto& [id, proxy] : std::map(proxies_)) {
    if (&proxy->node() == &node) proxy->Die("its host has crashed");
  }
}

void World::Violate(std::string sentence) {
  if (!violation_.empty()) return;
  Line("INVARIANT", sentence);
  violation_ = std::move(sentence);
}

void World::Line(std::string_view who, const std::string& text) {
  if (!tracing_) return;
  transcript_ +=
      std::format("{:10.6f} {:<9} {}\n", static_cast<double>(now()) / kSecond, who, text);
}

}  // namespace xmpi::sim
