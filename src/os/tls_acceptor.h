// TlsAcceptor: waits on a listening socket, in a thread that may block, for the one peer that
// proves the key. Handshakes go on side by side, so a stranger that is silent, slow or noisy
// delays nobody; there are at most limits::kImageStrangers of them. Owns nothing but the
// connections that have not proved themselves.
#pragma once

#include <chrono>
#include <functional>
#include <random>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "os/tls.h"
#include "os/tls_socket.h"

namespace xmpi::os {

class TlsAcceptor {
 public:
  using Clock = std::chrono::steady_clock;

  // Both outlive this object. `deadlines` are those of the accepted socket, too.
  TlsAcceptor(const TlsContext& context, const Fd& listener, TlsSocket::Deadlines deadlines)
      : context_(context), listener_(listener), deadlines_(deadlines) {}

  // The next peer that proves the key. kRefused once `stop_fd` is readable (-1: never), kTimeout
  // at `deadline`. `on_refused` is told why each stranger was turned away.
  Result<TlsSocket> Accept(int stop_fd, Clock::time_point deadline,
                           const std::function<void(const Error&)>& on_refused);

 private:
  struct Stranger {
    TlsSocket socket;
    Clock::time_point deadline;
    bool spoke = false;
  };

  Result<> Wait(int stop_fd, Clock::time_point deadline);
  void AcceptOne(int stop_fd, const std::function<void(const Error&)>& on_refused);
  void MakeRoom(const std::function<void(const Error&)>& on_refused);

  const TlsContext& context_;
  const Fd& listener_;
  const TlsSocket::Deadlines deadlines_;
  std::vector<Stranger> strangers_;  // oldest first
  std::minstd_rand random_{std::random_device{}()};
  std::vector<bool> ready_;  // as of the last Wait: the listener, then each stranger
};

}  // namespace xmpi::os
