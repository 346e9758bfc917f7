// LinkServer: the launcher's end of all links. One listening port; proxies dial it, prove that
// they know the key of the ProxyId they claim, and get the link of that ProxyId, which outlives
// its connections. Only expected proxies are answered; strangers cost bounded memory.
//
// Runs on one io_context and one thread. Callbacks come from the loop, never from inside a call to
// this class, and may call anything here. It owns sockets and timers; it knows nothing of a job.
#pragma once

#include <asio.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "base/limits.h"
#include "os/key.h"
#include "os/net.h"
#include "wire/control.pb.h"

namespace xmpi::os {

struct LinkServerEvents {
  // Control and stdio messages, each once, in order within its class. After a stdio message
  // (Output) StdioDone is owed.
  std::function<void(ProxyId, wire::Envelope)> on_message;
  // A connection stands: the first one, and again after each on_down. `peer` is the address it
  // came from.
  std::function<void(ProxyId, std::string peer)> on_up;
  // The connection is gone; what is sent now is kept, the proxy is expected to redial.
  std::function<void(ProxyId, std::string reason)> on_down;
  // The last word about this proxy: unheard for too long, or it said goodbye, or broke the
  // protocol. Its id is refused from now on.
  std::function<void(ProxyId, Error reason)> on_lost;
  // The stdio window has room again after StdioRoom was 0 or less.
  std::function<void(ProxyId)> on_stdio_room;
};

class LinkServer {
 public:
  struct Options {
    std::string job;
    std::string interface;  // -iface; "": all
    PortRange ports;
    LinkTimeouts timeouts;
  };

  static Result<std::unique_ptr<LinkServer>> Listen(asio::io_context& loop, const Secret& secret,
                                                    Options options, LinkServerEvents events);
  ~LinkServer();

  std::uint16_t port() const;
  // Where a proxy may dial, best first; for its bootstrap lines.
  const std::vector<std::string>& addresses() const;

  // From now on this proxy may dial. There is no deadline for its first connection here.
  void Expect(ProxyId proxy);
  // Drops the link and all it holds without a word; the id is refused from now on. No callback.
  void Forget(ProxyId proxy);
  // Sends what is queued, then goodbye; then the id is refused. No callback follows.
  void Close(ProxyId proxy, std::string_view reason);

  // Queues a control message; before the first connection too. Fails for a proxy that is not
  // expected, and when too much waits already.
  Result<> Send(ProxyId proxy, const wire::Envelope& message);
  // The same for stdio (Input). The caller stops when StdioRoom is 0 or less.
  Result<> SendStdio(ProxyId proxy, const wire::Envelope& message);
  std::int64_t StdioRoom(ProxyId proxy) const;
  // The oldest `messages` stdio messages of this proxy have been written out.
  void StdioDone(ProxyId proxy, std::size_t messages = 1);

  // Drops the connection as a network fault would; the proxy redials.
  void Cut(ProxyId proxy);
  // Connections that have not proved themselves yet; and how many were refused so far.
  std::size_t strangers() const;
  std::uint64_t refused() const;

 private:
  class Impl;
  explicit LinkServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace xmpi::os
