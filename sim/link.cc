#include "sim/link.h"

#include <format>

#include "base/check.h"

namespace xmpi::sim {
namespace {

const LinkTimeouts kTimeouts;

Time Us(std::chrono::milliseconds time) { return time.count() * kMs; }

}  // namespace

Time Network::Latency() {
  Time latency = random.Between(50, 1500);
  if (random.Percent(3)) latency += random.Between(5 * kMs, 150 * kMs);
  if (queue->now() < slow_until) latency += random.Between(50 * kMs, 800 * kMs);
  return latency;
}

Link::Link(Network* network, ProxyId proxy, LinkEvents events)
    : network_(*network),
      proxy_(proxy),
      events_(std::move(events)),
      ends_{wire::LinkState(0), wire::LinkState(1 + proxy.slot * 1000003ull +
                                                proxy.migration * 1009ull + proxy.attempt)} {}

void Link::Dial(Node* node) {
  node_ = node;
  Unheard();
  TryDial();
}

void Link::ProcessGone() {
  gone_ = true;
  if (!connected_) return;
  Drop();
  Unheard();
}

void Link::Forget() {
  forgotten_ = true;
  if (!connected_) return;
  Drop();
  if (!gone_) Redial(kTimeouts.redial_pause.count() * kMs);
}

void Link::SendToProxy(const wire::Envelope& envelope) {
  if (forgotten_) return;
  XMPI_CHECK(ends_[kLauncher].Send(wire::Channel::kControl, envelope.SerializeAsString()));
  Pump(kLauncher);
}

void Link::SendToLauncher(const wire::Envelope& envelope) {
  if (gone_) return;
  XMPI_CHECK(ends_[kProxy].Send(wire::Channel::kControl, envelope.SerializeAsString()));
  Pump(kProxy);
}

void Link::Cut(Time blocked) {
  blocked_until_ = std::max(blocked_until_, network_.queue->now() + blocked);
  if (!connected_) return;
  Drop();
  Unheard();
  Redial(0);
}

void Link::OnSilence() {
  if (!connected_ || doomed_) return;
  doomed_ = true;
  Unheard();
  network_.queue->After(Us(kTimeouts.redial_silence),
                        [self = shared_from_this(), connection = connection_] {
                          if (!self->connected_ || self->connection_ != connection) return;
                          self->Drop();
                          if (!self->gone_) self->Redial(0);
                        });
}

void Link::Redial(Time delay) {
  node_->After(delay + network_.random.Between(kMs, 50 * kMs),
               [self = shared_from_this()] { self->TryDial(); });
}

void Link::TryDial() {
  if (gone_ || connected_) return;
  if (node_->silent() || network_.queue->now() < blocked_until_) return Redial(300 * kMs);
  if (!network_.launcher_alive) return GiveUp(kProxy, "refused: the launcher is gone");
  if (forgotten_) return GiveUp(kProxy, "refused by the launcher");
  node_->After(network_.Latency() + 2 * kMs, [self = shared_from_this()] { self->Connect(); });
}

void Link::Connect() {
  if (gone_ || connected_) return;
  if (node_->silent() || !network_.launcher_alive || forgotten_) return Redial(50 * kMs);
  connected_ = ever_connected_ = true;
  doomed_ = false;
  unheard_since_ = -1;
  ++connection_;
  for (int end = 0; end < 2; ++end) {
    decoders_[end] = {};
    ends_[end].OnConnect();
  }
  Pump(kProxy);
  Pump(kLauncher);
}

void Link::Drop() {
  connected_ = false;
  ++connection_;
  ends_[kLauncher].OnDisconnect();
  ends_[kProxy].OnDisconnect();
}

// From now on neither end hears the other, unless a new connection stands in time.
void Link::Unheard() {
  if (unheard_since_ >= 0) return;
  const Time since = unheard_since_ = network_.queue->now();
  const auto give_up = [self = shared_from_this(), since](End who) {
    if (self->unheard_since_ == since) self->GiveUp(who, "unheard for too long");
  };
  node_->After(Us(kTimeouts.link_timeout), [give_up] { give_up(kProxy); });
  network_.queue->After(Us(kTimeouts.link_timeout + kTimeouts.launcher_grace),
                        [give_up] { give_up(kLauncher); });
}

void Link::GiveUp(End who, const std::string& why) {
  if (who == kProxy) {
    if (!gone_) events_.proxy_gives_up(why);
  } else if (!forgotten_ && network_.launcher_alive) {
    Forget();
    events_.launcher_gives_up(why);
  }
}

void Link::Pump(End from) {
  while (connected_) {
    std::string bytes = ends_[from].TakeWrite(64u << 10);
    if (bytes.empty()) return;
    Carry(from, std::move(bytes));
  }
}

void Link::Carry(End from, std::string bytes) {
  if (doomed_) return;
  Time& last = last_arrival_[from];
  last = std::max(last + 1, network_.queue->now() + network_.Latency());
  auto arrive = [self = shared_from_this(), connection = connection_, from,
                 bytes = std::move(bytes)] {
    if (!self->connected_ || self->connection_ != connection || self->doomed_) return;
    if (self->node_->silent() || !self->node_->up()) return self->OnSilence();
    self->Feed(from == kProxy ? kLauncher : kProxy, bytes);
  };
  // What is in the launcher's hands does not care whether the proxy's host stands still by now.
  const Time delay = last - network_.queue->now();
  if (from == kProxy) {
    network_.queue->After(delay, std::move(arrive));
  } else {
    node_->After(delay, std::move(arrive));
  }
}

void Link::Feed(End to, const std::string& bytes) {
  if (to == kProxy ? gone_ : forgotten_ || !network_.launcher_alive) return;
  const int connection = connection_;
  decoders_[to].Feed(bytes);
  while (connected_ && connection_ == connection) {
    auto frame = decoders_[to].Next();
    XMPI_CHECK(frame);
    if (!*frame) break;
    auto delivery = ends_[to].OnFrame(std::move(**frame));
    XMPI_CHECK(delivery);
    if (!*delivery) continue;
    wire::Envelope envelope;
    XMPI_CHECK(envelope.ParseFromString((*delivery)->payload));
    (to == kProxy ? events_.at_proxy : events_.at_launcher)(std::move(envelope));
    if (to == kProxy ? gone_ : forgotten_ || !network_.launcher_alive) return;
  }
  Pump(to);
  Pump(to == kProxy ? kLauncher : kProxy);
}

}  // namespace xmpi::sim
