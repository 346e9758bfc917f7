#include "sim/proxy.h"

#include <format>

#include "sim/world.h"

namespace xmpi::sim {

Proxy::Proxy(World* world, ProxyId id, Node* node, std::shared_ptr<Link> link)
    : world_(*world), id_(id), node_(*node), link_(std::move(link)), agent_(id, node->name(), {}) {}

void Proxy::Begin() {
  link_->Dial(&node_);
  wire::Envelope envelope;
  wire::Header& header = *envelope.mutable_header();
  header.set_slot(id_.slot);
  header.set_migration(id_.migration);
  header.set_attempt(id_.attempt);
  envelope.mutable_proxy_hello()->set_hostname(node_.name());
  link_->SendToLauncher(envelope);
}

void Proxy::After(Time delay, std::function<void()> what) {
  node_.After(delay, [weak = weak_from_this(), what = std::move(what)] {
    if (const auto self = weak.lock(); self && self->alive_) what();
  });
}

void Proxy::Die(const std::string& why) {
  if (!alive_) return;
  alive_ = false;
  world_.Say(ToString(id_), "proxy process ends: {}", why);
  BreakImageConnection();
  for (auto& [rank, process] : ranks_) process->End();
  images_.clear();
  arrived_ = false;
  link_->ProcessGone();
  world_.OnProxyGone(*this, why);
}

void Proxy::OnMessage(wire::Envelope envelope) {
  if (!leaving_) Deliver(core::LauncherSaid{std::move(envelope)});
}

void Proxy::Deliver(core::AgentEvent event) {
  if (!alive_) return;
  core::AgentActions actions = agent_.On(event);
  for (core::AgentAction& action : actions) {
    if (!alive_) return;
    std::visit([this](auto& what) { Perform(what); }, action);
  }
}

Time Proxy::InOrder(Time& last, Time delay) {
  last = std::max(last + 1, world_.now() + delay);
  return last - world_.now();
}

void Proxy::OnRankSays(RankProcess& rank, core::RankMessage message) {
  // A proxy may come to read a rank's socket late: it has many, and its host is busy.
  const bool late = world_.app().Percent(4);
  const Time delay =
      late ? world_.app().Between(100 * kMs, 1500 * kMs) : world_.app().Between(10, 400);
  After(InOrder(sockets_[rank.rank()].control_out, delay),
        [this, id = rank.rank(), message = std::move(message)] {
          Deliver(core::RankSaid{id, message});
        });
}

void Proxy::OnRankPmi(RankProcess& rank, std::string bytes) {
  After(InOrder(sockets_[rank.rank()].pmi_out, world_.app().Between(10, 300)),
        [this, id = rank.rank(), bytes = std::move(bytes)] { Deliver(core::RankPmi{id, bytes}); });
}

void Proxy::OnRankEnded(RankProcess& rank, std::uint32_t wait_status) {
  Sockets& sockets = sockets_[rank.rank()];
  sockets.pmi_out = std::max(sockets.pmi_out, sockets.control_out);
  After(InOrder(sockets.pmi_out, world_.app().Between(50, 2 * kMs)),
        [this, id = rank.rank(), instance = rank.instance(), wait_status] {
          const auto found = ranks_.find(id);
          if (found != ranks_.end() && found->second->instance() == instance)
            Deliver(core::RankEnded{id, wait_status});
        });
}

void Proxy::CrashRank(RankProcess& rank) {
  rank.End();
  OnRankEnded(rank, 11);
}

void Proxy::Perform(core::ToLauncher& action) {
  world_.invariants().OnSpeaks(id_, action.envelope);
  link_->SendToLauncher(action.envelope);
}

void Proxy::Perform(core::ToRank& action) {
  const auto found = ranks_.find(action.rank);
  if (found == ranks_.end()) return;
  After(InOrder(sockets_[action.rank].control_in, world_.app().Between(10, 300)),
        [process = found->second, message = action.message] { process->OnControl(message); });
}

void Proxy::Perform(core::SignalRank& action) {
  const auto found = ranks_.find(action.rank);
  if (found == ranks_.end()) return;
  const Time delay = InOrder(sockets_[action.rank].control_in, world_.app().Between(10, 300));
  After(delay + world_.app().Between(0, 3 * kMs),
        [process = found->second] { process->OnSignal(); });
}

void Proxy::Perform(core::ToPmi& action) {
  const auto found = ranks_.find(action.rank);
  if (found == ranks_.end()) return;
  After(InOrder(sockets_[action.rank].pmi_in, world_.app().Between(10, 300)),
        [process = found->second, bytes = action.bytes] { process->OnPmi(bytes); });
}

void Proxy::Perform(core::ClosePmi& action) {
  world_.Violate(std::format("Ranks and proxies speak the same PMI: {} closes rank {}'s",
                             ToString(id_), action.rank));
}

void Proxy::Perform(core::AgentLog& action) { world_.Say(ToString(id_), "{}", action.text); }

void Proxy::Perform(core::Leave& action) {
  if (leaving_) return;
  leaving_ = true;
  for (auto& [rank, process] : ranks_) process->End();
  After(world_.app().Between(kMs, 20 * kMs), [this, reason = action.reason] {
    wire::Envelope envelope;
    wire::Header& header = *envelope.mutable_header();
    header.set_slot(id_.slot);
    header.set_attempt(id_.attempt);
    envelope.mutable_leaving()->set_reason(reason);
    link_->SendToLauncher(envelope);
    SayGoodbye();
  });
}

void Proxy::SayGoodbye() {
  if (link_->Flushed()) return Die("has left");
  After(5 * kMs, [this] { SayGoodbye(); });
}

}  // namespace xmpi::sim
