// TLS 1.3 with an external pre-shared key, and nothing else: no certificate is offered or
// accepted, no ticket, no early data, no older version. TlsContext is the configuration of one
// side; it serves an asio::ssl::stream (through native()) and TlsSocket alike. After a handshake
// CheckPeer must say yes before a byte is believed: it is what proves that the key was used.
#pragma once

#include <openssl/ssl.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "os/key.h"

namespace xmpi::os {

class TlsContext {
 public:
  // The key of an identity that a peer claims; nothing when the identity is not welcome.
  using KeyLookup = std::function<std::optional<Secret>(std::string_view identity)>;

  // The side that dials: offers this one identity.
  static Result<TlsContext> Client(std::string identity, Secret key);
  // The side that listens. `lookup` is called during handshakes, on the handshaking thread.
  static Result<TlsContext> Server(KeyLookup lookup);

  TlsContext(TlsContext&&) noexcept;
  TlsContext& operator=(TlsContext&&) noexcept;
  ~TlsContext();

  // Owned by this object; whoever makes an SSL from it keeps this object alive as long.
  SSL_CTX* native() const { return context_.get(); }

 private:
  struct Settings;
  struct FreeContext {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };

  TlsContext();
  Result<> Configure();
  static int UseSession(SSL* ssl, const EVP_MD* digest, const unsigned char** id,
                        std::size_t* id_bytes, SSL_SESSION** session);
  static int FindSession(SSL* ssl, const unsigned char* id, std::size_t id_bytes,
                         SSL_SESSION** session);

  std::unique_ptr<Settings> settings_;
  std::unique_ptr<SSL_CTX, FreeContext> context_;
};

// The identity under which the finished handshake of `ssl` was made. An Error when it was not TLS
// 1.3 with a pre-shared key, or a certificate was involved: then the connection is to be closed.
Result<std::string> CheckPeer(SSL* ssl);

// Why a handshake or an operation on `ssl` failed, for a person; empties OpenSSL's error queue.
// `code` is an error of OpenSSL's queue when the caller has taken it out already, else 0.
Error TlsFailure(SSL* ssl, std::string_view what, unsigned long code = 0);

}  // namespace xmpi::os
