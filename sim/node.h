// Node: a simulated host. It can crash and come back empty, fall silent (everything to and from it
// is dropped) and stand still. What happens on it is scheduled through it, so that a crash forgets
// and a freeze delays it.
#pragma once

#include <functional>
#include <string>

#include "sim/event_queue.h"

namespace xmpi::sim {

class Node {
 public:
  Node(EventQueue* queue, std::string name) : queue_(*queue), name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  bool up() const { return up_; }
  bool silent() const { return queue_.now() < silent_until_; }
  bool frozen() const { return queue_.now() < frozen_until_; }
  bool Answers() const { return up_ && !silent() && !frozen(); }

  void Crash() {
    up_ = false;
    ++boot_;
  }
  void Boot() { up_ = true; }
  void SilenceUntil(Time time) { silent_until_ = std::max(silent_until_, time); }
  void FreezeUntil(Time time) { frozen_until_ = std::max(frozen_until_, time); }
  void Heal() { silent_until_ = frozen_until_ = 0; }

  // Runs `what` here: not at all if the node has crashed by then, later if it stands still.
  void After(Time delay, std::function<void()> what) {
    queue_.After(delay, [this, boot = boot_, what = std::move(what)]() mutable {
      if (boot != boot_) return;
      if (frozen()) return AfterThaw(boot, std::move(what));
      what();
    });
  }

 private:
  void AfterThaw(int boot, std::function<void()> what) {
    queue_.At(frozen_until_, [this, boot, what = std::move(what)]() mutable {
      if (boot != boot_) return;
      if (frozen()) return AfterThaw(boot, std::move(what));
      what();
    });
  }

  EventQueue& queue_;
  std::string name_;
  bool up_ = true;
  int boot_ = 0;
  Time silent_until_ = 0;
  Time frozen_until_ = 0;
};

inline bool CanTalk(const Node& a, const Node& b) {
  return &a == &b ? a.up() && !a.frozen() : a.Answers() && b.Answers();
}

}  // namespace xmpi::sim
