// Launcher: a simulated xmpiexec: the real core::Coordinator, its timers, the links' server end and
// remote shells that take their time. Every event passes through Feed, where the invariants look at
// the machine before and after it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "base/ids.h"
#include "core/coordinator.h"
#include "sim/link.h"

namespace xmpi::sim {

class World;

class Launcher {
 public:
  Launcher(World* world, core::JobPlan plan);

  void Start() { Feed(core::StartJob{}); }
  void Feed(core::Event event);
  // The process dies: its links are refused from now on, and nobody decides anything any more.
  void Crash();
  bool alive() const { return alive_; }

  const core::Coordinator& coordinator() const { return coordinator_; }
  Link* LinkOf(const ProxyId& proxy);
  const std::map<ProxyId, std::shared_ptr<Link>>& links() const { return links_; }

  bool ended() const { return ended_; }
  int exit_code() const { return exit_code_; }
  const std::string& why_ended() const { return why_ended_; }

  // A process that the remote shell had started is gone, and the shell with it.
  void OnShellEnded(const ProxyId& proxy, const std::string& why);

 private:
  void Handle(const core::Event& event);
  void Do(const core::StartProxy& action);
  void Do(const core::SendMessage& action);
  void Do(const core::StopProxy& action);
  void Do(const core::StartTimer& action);
  void Do(const core::DrainOutput&) {}
  void Do(const core::FeedInput&) {}
  void Do(const core::Record& action);
  void Do(const core::Accepted& action);
  void Do(const core::Answer& action);
  void Do(const core::Tell& action);
  void Do(const core::EndJob& action);
  void OnMessage(const ProxyId& from, wire::Envelope envelope);
  void After(Time delay, std::function<void()> what);

  World& world_;
  core::Coordinator coordinator_;
  std::map<ProxyId, std::shared_ptr<Link>> links_;
  std::map<core::TimerId, std::uint64_t> timers_;
  std::uint64_t next_timer_ = 0;
  std::deque<core::Event> events_;
  bool feeding_ = false;
  bool alive_ = true;
  bool ended_ = false;
  int exit_code_ = 0;
  std::string why_ended_;
};

}  // namespace xmpi::sim
