// LinkClient: the proxy's end of its link. It dials the launcher's addresses side by side, proves
// its key, redials when the connection drops, and says when the launcher must be taken for dead:
// refused at once, silent for link_timeout. The promise to the launcher: on_lost comes no later
// than link_timeout after the last moment at which the launcher can have heard this proxy.
//
// Runs on one io_context and one thread; callbacks come from the loop, never from inside a call.
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
#include "wire/control.pb.h"

namespace xmpi::os {

struct LinkClientEvents {
  std::function<void(wire::Envelope)> on_message;  // Input is a control message: no StdioDone
  // `local` is this host's address on the connection: where others can reach it too.
  std::function<void(std::string local)> on_up;
  std::function<void(std::string reason)> on_down;
  std::function<void(Error reason)> on_lost;  // the last callback
  std::function<void()> on_stdio_room;
};

class LinkClient {
 public:
  struct Options {
    std::string job;
    ProxyId proxy;
    std::vector<std::string> addresses;  // numeric, best first
    std::uint16_t port = 0;
    LinkTimeouts timeouts;
  };

  // Dials at once.
  static Result<std::unique_ptr<LinkClient>> Start(asio::io_context& loop, const Secret& secret,
                                                   Options options, LinkClientEvents events);
  ~LinkClient();

  Result<> Send(const wire::Envelope& message);
  Result<> SendStdio(const wire::Envelope& message);
  std::int64_t StdioRoom() const;
  void StdioDone(std::size_t messages = 1);

  // Sends what is queued, then goodbye; `closed` runs when the launcher has it all or is gone.
  void Close(std::string_view reason, std::function<void()> closed);
  void Cut();

 private:
  class Impl;
  explicit LinkClient(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace xmpi::os
