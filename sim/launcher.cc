#include "sim/launcher.h"

#include <format>

#include "sim/describe.h"
#include "sim/world.h"

namespace xmpi::sim {
namespace {

constexpr Time kStartTimeout = 30 * kSecond;  // as LinkTimeouts::start

}  // namespace

Launcher::Launcher(World* world, core::JobPlan plan)
    : world_(*world), coordinator_(std::move(plan)) {}

void Launcher::After(Time delay, std::function<void()> what) {
  world_.queue().After(delay, [this, what = std::move(what)] {
    if (alive_ && !ended_) what();
  });
}

void Launcher::Feed(core::Event event) {
  if (!alive_ || ended_) return;
  events_.push_back(std::move(event));
  if (feeding_) return;
  feeding_ = true;
  while (!events_.empty() && alive_) {
    const core::Event next = std::move(events_.front());
    events_.pop_front();
    Handle(next);
  }
  feeding_ = false;
}

void Launcher::Handle(const core::Event& event) {
  if (world_.tracing()) world_.Say("launcher", "< {}", Describe(event));
  world_.invariants().BeforeEvent(event);
  const core::Actions actions = coordinator_.On(event, world_.now());
  world_.invariants().AfterEvent(actions);
  for (const core::Action& action : actions)
    std::visit([this](const auto& what) { Do(what); }, action);
  world_.faults().AfterEvent();
}

void Launcher::Crash() {
  alive_ = false;
  world_.network().launcher_alive = false;
  world_.Say("launcher", "crashes");
  for (auto& [proxy, link] : links_) link->Forget();
}

Link* Launcher::LinkOf(const ProxyId& proxy) {
  const auto found = links_.find(proxy);
  return found == links_.end() ? nullptr : found->second.get();
}

// The remote shell logs in and starts the proxy; on a host that is down it waits or is refused.
void Launcher::Do(const core::StartProxy& action) {
  const ProxyId id = action.proxy;
  world_.Say("launcher", "starts proxy {} on {}", ToString(id), action.node);
  links_[id] = std::make_shared<Link>(
      &world_.network(), id,
      LinkEvents{
          .at_launcher = [this,
                          id](wire::Envelope envelope) { OnMessage(id, std::move(envelope)); },
          .at_proxy =
              [this, id](wire::Envelope envelope) {
                if (const auto proxy = world_.FindProxy(id)) proxy->OnMessage(std::move(envelope));
              },
          .launcher_gives_up =
              [this, id](std::string why) {
                world_.OnHolderUnheard(id);
                Feed(core::ProxyLost{id, std::move(why)});
              },
          .proxy_gives_up =
              [this, id](std::string why) {
                if (const auto proxy = world_.FindProxy(id)) proxy->Die("link: " + why);
              },
      });
  Node& node = world_.node(action.node);
  After(world_.work().Between(80 * kMs, 400 * kMs), [this, id, &node] {
    if (!links_.contains(id)) return;  // stopped in the meantime
    if (node.Answers()) return world_.StartProxyProcess(id, &node, links_[id]);
    const bool refused = !node.up() && world_.work().Percent(50);
    After(refused ? kSecond : kStartTimeout, [this, id] {
      if (links_.contains(id)) Feed(core::ProxyLost{id, "ssh: no answer"});
    });
  });
}

void Launcher::Do(const core::SendMessage& action) {
  world_.invariants().OnSend(action);
  if (world_.tracing())
    world_.Say("launcher", "> {}: {}", ToString(action.to), Describe(action.envelope));
  if (Link* link = LinkOf(action.to)) return link->SendToProxy(action.envelope);
  if (coordinator_.proxies().contains(action.to)) Feed(core::ProxyLost{action.to, "not expected"});
}

void Launcher::Do(const core::StopProxy& action) {
  const auto found = links_.find(action.proxy);
  if (found == links_.end()) return;
  found->second->Forget();
  links_.erase(found);
}

void Launcher::Do(const core::StartTimer& action) {
  const std::uint64_t number = timers_[action.timer] = ++next_timer_;
  After(action.after.count() * kMs, [this, id = action.timer, number] {
    const auto found = timers_.find(id);
    if (found == timers_.end() || found->second != number) return;
    timers_.erase(found);
    Feed(core::TimerExpired{id});
  });
}

void Launcher::Do(const core::Record& action) {
  if (action.name == "job.end") why_ended_ = std::get<std::string>(action.fields.at(1).second);
  if (world_.tracing()) world_.Say("launcher", "{}", Describe(action));
}

void Launcher::Do(const core::Accepted& action) {
  world_.Say("launcher", "order {} is migration {}", action.request, action.migration);
}

void Launcher::Do(const core::Answer& action) {
  world_.Say("launcher", "answers order {}: {}{}", action.request, action.result.ok ? "ok " : "",
             action.result.reason);
  world_.operations().OnAnswer(action);
}

void Launcher::Do(const core::Tell& action) { world_.Say("launcher", "tells: {}", action.text); }

void Launcher::Do(const core::EndJob& action) {
  ended_ = true;
  exit_code_ = action.exit_code;
  world_.Say("launcher", "the job has ended with code {}", exit_code_);
  for (auto& [proxy, link] : links_) link->Forget();
}

void Launcher::OnMessage(const ProxyId& from, wire::Envelope envelope) {
  if (envelope.has_drained()) return Feed(core::OutputDrained{from});
  Feed(core::ProxyMessage{from, std::move(envelope)});
}

void Launcher::OnShellEnded(const ProxyId& proxy, const std::string& why) {
  After(world_.work().Between(10 * kMs, 300 * kMs), [this, proxy, why] {
    if (links_.contains(proxy)) Feed(core::ProxyLost{proxy, why});
  });
}

}  // namespace xmpi::sim
