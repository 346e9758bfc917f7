#include "sim/operations.h"

#include <algorithm>
#include <format>

#include "sim/world.h"

namespace xmpi::sim {

void Operations::Next() {
  if (ordered_ == world_.scenario().moves) {
    done_ = true;
    return;
  }
  ++ordered_;
  const bool at_once = random_.Percent(30);
  const Time pause = at_once ? 0 : random_.Between(50 * kMs, 2 * kSecond);
  world_.queue().After(pause, [this] { Order(NodeToLeave(), random_.Percent(20), true); });
}

std::string Operations::NodeToLeave() {
  const auto& slots = world_.launcher().coordinator().slots();
  return slots[random_.Below(slots.size())].node;
}

std::optional<std::string> Operations::NodeToName(const std::string& from) {
  if (!world_.scenario().name_target || random_.Percent(50)) return std::nullopt;
  const auto& nodes = world_.node_names();
  const std::string& node = nodes[random_.Below(nodes.size())];
  if (node == from) return std::nullopt;
  return node;
}

void Operations::Order(const std::string& node, bool urgent, bool ours) {
  core::EvacuateOrder order{.request = next_++, .node = node, .to = {}};
  if (ours) {
    order.to = NodeToName(node);
    ours_ = order.request;
  }
  if (urgent) order.within = std::chrono::seconds(5);
  world_.launcher().Feed(order);
}

void Operations::Cancel() { world_.launcher().Feed(core::CancelOrder{next_++}); }

void Operations::OrderLastMove() {
  last_ = next_++;
  world_.launcher().Feed(core::EvacuateOrder{.request = last_, .node = NodeToLeave(), .to = {}});
}

void Operations::OnAnswer(const core::Answer& answer) {
  if (answer.result.ok) ++ok_;
  if (answer.request == ours_) {
    ours_ = 0;
    Next();
  }
  if (answer.request != last_) return;
  last_ = 0;
  const auto& spares = world_.launcher().coordinator().plan().spares;
  const bool possible = std::ranges::any_of(spares, [&](const std::string& spare) {
    return spare != answer.result.from && world_.node(spare).up();
  });
  if (!answer.result.ok && possible && !world_.launcher().ended() &&
      world_.launcher().coordinator().stage() == core::JobStage::kRunning)
    world_.Violate(std::format("Once faults are over a move succeeds: {}", answer.result.reason));
}

}  // namespace xmpi::sim
