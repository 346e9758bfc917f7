// Operations: the people around a job. They order moves one after the other, now and then naming
// the target, order once more after the faults, and let the program come to its end.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/action.h"
#include "sim/event_queue.h"
#include "sim/random.h"

namespace xmpi::sim {

class World;

class Operations {
 public:
  Operations(World* world, Random random) : world_(*world), random_(random) {}

  void Begin() { Next(); }
  void Order(const std::string& node, bool urgent, bool ours = false);
  void Cancel();
  void OnAnswer(const core::Answer& answer);

  // All orders of the scenario are answered.
  bool done() const { return done_; }
  // Faults are over and everything is at rest: one more move, which must succeed.
  void OrderLastMove();
  bool last_move_pending() const { return last_ != 0; }
  int ok() const { return ok_; }

 private:
  void Next();
  std::string NodeToLeave();
  std::optional<std::string> NodeToName(const std::string& from);

  World& world_;
  Random random_;
  core::RequestId next_ = 1;
  core::RequestId ours_ = 0;  // the scenario's order that is not answered yet
  core::RequestId last_ = 0;
  int ordered_ = 0;
  int ok_ = 0;
  bool done_ = false;
};

}  // namespace xmpi::sim
