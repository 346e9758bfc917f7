// Link: launcher and proxy with the real wire::LinkState at both ends, and a simulated connection
// between them: it keeps order, takes time, breaks, is found dead only after a silence, and is
// dialled anew. Both ends give up after the times that os::LinkClient and os::LinkServer promise.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>

#include "base/ids.h"
#include "base/limits.h"
#include "sim/event_queue.h"
#include "sim/node.h"
#include "sim/random.h"
#include "wire/control.pb.h"
#include "wire/frame.h"
#include "wire/link_state.h"

namespace xmpi::sim {

struct LinkEvents {
  std::function<void(wire::Envelope)> at_launcher;
  std::function<void(wire::Envelope)> at_proxy;
  std::function<void(std::string why)> launcher_gives_up;
  std::function<void(std::string why)> proxy_gives_up;
};

// What all links share.
struct Network {
  EventQueue* queue = nullptr;
  Random random{0};
  bool launcher_alive = true;
  Time slow_until = 0;

  Time Latency();
};

class Link : public std::enable_shared_from_this<Link> {
 public:
  Link(Network* network, ProxyId proxy, LinkEvents events);

  // The proxy's process runs on `node` and dials.
  void Dial(Node* node);
  // The process is gone, with what it had not sent.
  void ProcessGone();
  // The launcher's side: drops everything; the proxy is refused from now on.
  void Forget();

  void SendToProxy(const wire::Envelope& envelope);
  void SendToLauncher(const wire::Envelope& envelope);

  // The connection breaks, both ends notice, and no other stands before `blocked` has passed.
  void Cut(Time blocked);
  // The node has begun to drop everything: the connection will never carry a byte again.
  void OnSilence();

  bool forgotten() const { return forgotten_; }
  bool ever_connected() const { return ever_connected_; }
  bool connected() const { return connected_; }
  // Everything the proxy has said is at the launcher.
  bool Flushed() const { return ends_[kProxy].Flushed(); }

 private:
  enum End { kLauncher, kProxy };

  void Redial(Time delay);
  void TryDial();
  void Connect();
  void Drop();
  void Unheard();
  void Pump(End from);
  void Carry(End from, std::string bytes);
  void Feed(End to, const std::string& bytes);
  void GiveUp(End who, const std::string& why);

  Network& network_;
  ProxyId proxy_;
  LinkEvents events_;
  Node* node_ = nullptr;
  std::array<wire::LinkState, 2> ends_;
  std::array<wire::FrameDecoder, 2> decoders_;
  std::array<Time, 2> last_arrival_{};
  int connection_ = 0;
  bool connected_ = false;
  bool ever_connected_ = false;
  bool doomed_ = false;  // nothing more arrives on this connection, and nobody knows yet
  bool forgotten_ = false;
  bool gone_ = false;
  Time blocked_until_ = 0;
  Time unheard_since_ = -1;
};

}  // namespace xmpi::sim
