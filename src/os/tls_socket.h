// TlsSocket: one TLS connection for a thread that may block (image connections). Every operation
// ends: with bytes, or with an Error once nothing moved for `progress`. The owner is one thread;
// only Abort may be called from another. The socket never raises SIGPIPE.
#pragma once

#include <openssl/ssl.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"
#include "base/fd.h"
#include "os/tls.h"

namespace xmpi::os {

class TlsSocket {
 public:
  struct Deadlines {
    std::chrono::milliseconds handshake;
    std::chrono::milliseconds progress;
  };

  TlsSocket(TlsSocket&&) noexcept;
  TlsSocket& operator=(TlsSocket&&) noexcept;
  ~TlsSocket();

  // Over a connected socket, whose fd is taken. The peer is proved when these return a TlsSocket.
  static Result<TlsSocket> Connect(const TlsContext& context, Fd socket, Deadlines deadlines);
  static Result<TlsSocket> Accept(const TlsContext& context, Fd socket, Deadlines deadlines);

  Result<> Write(std::span<const std::byte> bytes);
  // At least one byte, or 0 when the peer has said that no more comes. A cut is an Error.
  Result<std::size_t> Read(std::span<std::byte> bytes);
  Result<> ReadExactly(std::span<std::byte> bytes);
  // Says that no more comes from this side.
  Result<> Finish();

  // Makes every present and later operation fail; the fd stays open. From any thread.
  void Abort();

  // The identity that the handshake proved.
  const std::string& identity() const { return identity_; }

 private:
  friend class TlsAcceptor;
  struct Wire;
  struct FreeSsl {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  TlsSocket();
  static Result<TlsSocket> Make(const TlsContext& context, Fd socket, Deadlines deadlines);
  // One step of the handshake: true when it is done, false when the socket must be ready first.
  Result<bool> StepHandshake(bool accept);
  Result<> Handshake(bool accept);
  // Repeats `operation` until it gives more than 0, or fails. 0 at the peer's orderly end.
  template <class Operation>
  Result<std::size_t> Run(std::string_view what, Operation operation);
  // Until the socket has taken all that was written.
  Result<> Flush(std::string_view what);
  Result<> Wait(int ssl_error, std::chrono::steady_clock::time_point deadline,
                std::string_view what);

  Fd socket_;
  std::unique_ptr<Wire> wire_;
  std::unique_ptr<SSL, FreeSsl> ssl_;  // uses both
  Deadlines deadlines_{};
  std::string identity_;
};

}  // namespace xmpi::os
