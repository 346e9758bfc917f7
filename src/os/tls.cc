#include "os/tls.h"

#include <openssl/err.h>

#include <cerrno>
#include <cstring>
#include <format>

#include "base/limits.h"

namespace xmpi::os {
namespace {

// The hash of the cipher suite is the hash of the key's binder, so one suite and one hash.
constexpr char kCipherSuite[] = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kCipherId[] = {0x13, 0x01};
constexpr char kGroups[] = "X25519:P-256";

// What a handshake's callbacks learn, kept with its SSL until CheckPeer or TlsFailure asks.
struct Handshake {
  std::string identity;  // of the key in use
  std::string unknown;   // the last identity that was offered and is not welcome
};

void FreeHandshake(void*, void* pointer, CRYPTO_EX_DATA*, int, long, void*) {
  delete static_cast<Handshake*>(pointer);
}

int HandshakeIndex() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, FreeHandshake);
  return index;
}

Handshake* HandshakeOf(SSL* ssl) {
  auto* handshake = static_cast<Handshake*>(SSL_get_ex_data(ssl, HandshakeIndex()));
  if (handshake == nullptr) {
    handshake = new Handshake;
    SSL_set_ex_data(ssl, HandshakeIndex(), handshake);
  }
  return handshake;
}

SSL_SESSION* MakeSession(SSL* ssl, const Secret& key) {
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kCipherId);
  SSL_SESSION* session = SSL_SESSION_new();
  if (session == nullptr || cipher == nullptr ||
      SSL_SESSION_set1_master_key(session, key.bytes().data(), Secret::kBytes) != 1 ||
      SSL_SESSION_set_cipher(session, cipher) != 1 ||
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
    SSL_SESSION_free(session);
    return nullptr;
  }
  return session;
}

int RefuseCertificate(int, X509_STORE_CTX*) { return 0; }

// What a stranger sent, cut short and made safe to print.
std::string Printable(std::string_view text) {
  std::string out;
  for (const unsigned char c : text.substr(0, limits::kIdentityBytes)) {
    out.push_back(c < ' ' || c > '~' ? '?' : static_cast<char>(c));
  }
  return out;
}

// The cause in words, or "" for an error that OpenSSL's own words explain best.
std::string_view Explain(int reason) {
  switch (reason) {
    case SSL_R_BINDER_DOES_NOT_VERIFY:
      return "the peer does not have the key of its identity";
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_SUITABLE_KEY_SHARE:
      return "the peer offered no pre-shared key that is known here";
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
      return "the peer does not speak TLS 1.3";
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
      return "the peer showed a certificate instead of the key";
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
      return "the peer has another key for this identity";
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
      return "the peer does not accept this identity (it knows no such proxy, or no longer)";
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_BAD_RECORD_TYPE:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_RECORD_TOO_SMALL:
      return "the peer does not speak TLS";
    case SSL_R_UNEXPECTED_EOF_WHILE_READING:
      return "the connection was cut";
    default:
      return "";
  }
}

ErrorCode CodeOf(unsigned long code) {
  if (ERR_SYSTEM_ERROR(code)) return ErrorCode::kUnreachable;
  if (ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING) return ErrorCode::kUnreachable;
  return ErrorCode::kRefused;
}

}  // namespace

// At a fixed address, because the SSL_CTX points to it.
struct TlsContext::Settings {
  std::string identity;
  std::optional<Secret> key;
  KeyLookup lookup;
};

TlsContext::TlsContext() : settings_(std::make_unique<Settings>()) {}
TlsContext::TlsContext(TlsContext&&) noexcept = default;
TlsContext& TlsContext::operator=(TlsContext&&) noexcept = default;
TlsContext::~TlsContext() = default;

Result<TlsContext> TlsContext::Client(std::string identity, Secret key) {
  TlsContext context;
  context.settings_->identity = std::move(identity);
  context.settings_->key = std::move(key);
  context.context_.reset(SSL_CTX_new(TLS_client_method()));
  XMPI_RETURN_IF_ERROR(context.Configure());
  SSL_CTX_set_psk_use_session_callback(context.native(), UseSession);
  // A server without the key would need a certificate: none is good enough. (Our own server has
  // none to show and asks for none, so without the key it cannot finish a handshake.)
  SSL_CTX_set_verify(context.native(), SSL_VERIFY_PEER, RefuseCertificate);
  return context;
}

Result<TlsContext> TlsContext::Server(KeyLookup lookup) {
  TlsContext context;
  context.settings_->lookup = std::move(lookup);
  context.context_.reset(SSL_CTX_new(TLS_server_method()));
  XMPI_RETURN_IF_ERROR(context.Configure());
  SSL_CTX_set_psk_find_session_callback(context.native(), FindSession);
  return context;
}

Result<> TlsContext::Configure() {
  SSL_CTX* context = native();
  if (context == nullptr) return std::unexpected(TlsFailure(nullptr, "TLS"));
  SSL_CTX_set_app_data(context, settings_.get());
  const bool set = SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                   SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
                   SSL_CTX_set_ciphersuites(context, kCipherSuite) == 1 &&
                   SSL_CTX_set1_groups_list(context, kGroups) == 1 &&
                   SSL_CTX_set_num_tickets(context, 0) == 1 &&
                   SSL_CTX_set_max_early_data(context, 0) == 1 &&
                   SSL_CTX_set_recv_max_early_data(context, 0) == 1;
  if (!set) return std::unexpected(TlsFailure(nullptr, "TLS"));
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_AUTO_RETRY | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  return {};
}

int TlsContext::UseSession(SSL* ssl, const EVP_MD* digest, const unsigned char** id,
                           std::size_t* id_bytes, SSL_SESSION** session) {
  const auto* settings = static_cast<Settings*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
  *id = nullptr;
  *id_bytes = 0;
  *session = nullptr;
  // Called again with a digest when the server chose a suite before the key (a retry request).
  if (digest != nullptr && !EVP_MD_is_a(digest, "SHA256")) return 1;
  *session = MakeSession(ssl, *settings->key);
  if (*session == nullptr) return 0;
  *id = reinterpret_cast<const unsigned char*>(settings->identity.data());
  *id_bytes = settings->identity.size();
  HandshakeOf(ssl)->identity = settings->identity;
  return 1;
}

int TlsContext::FindSession(SSL* ssl, const unsigned char* id, std::size_t id_bytes,
                            SSL_SESSION** session) {
  const auto* settings = static_cast<Settings*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
  const std::string_view identity(reinterpret_cast<const char*>(id), id_bytes);
  *session = nullptr;
  const std::optional<Secret> key =
      id_bytes <= limits::kIdentityBytes ? settings->lookup(identity) : std::nullopt;
  if (!key) {
    HandshakeOf(ssl)->unknown = Printable(identity);
    return 1;
  }
  *session = MakeSession(ssl, *key);
  HandshakeOf(ssl)->identity = identity;
  return *session != nullptr;
}

Result<std::string> CheckPeer(SSL* ssl) {
  if (SSL_is_init_finished(ssl) != 1 || SSL_version(ssl) != TLS1_3_VERSION) {
    return Fail(ErrorCode::kRefused, "the handshake did not end in TLS 1.3");
  }
  if (SSL_session_reused(ssl) != 1) {
    return Fail(ErrorCode::kRefused, "the peer did not use the pre-shared key");
  }
  if (SSL_get0_peer_certificate(ssl) != nullptr) {
    return Fail(ErrorCode::kRefused, "the peer showed a certificate instead of the key");
  }
  const std::string& identity = HandshakeOf(ssl)->identity;
  if (identity.empty()) return Fail(ErrorCode::kRefused, "the peer has no identity");
  return identity;
}

Error TlsFailure(SSL* ssl, std::string_view what, unsigned long code) {
  const int system_error = errno;
  if (code == 0) code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) {
    const char* text = system_error == 0 ? "the connection was cut" : std::strerror(system_error);
    return Error{ErrorCode::kUnreachable, std::format("{}: {}", what, text)};
  }
  std::string text(ERR_SYSTEM_ERROR(code) ? std::strerror(ERR_GET_REASON(code))
                                          : Explain(ERR_GET_REASON(code)));
  const char* openssl = ERR_reason_error_string(code);
  if (text.empty()) text = openssl == nullptr ? std::format("TLS error {:x}", code) : openssl;
  if (ssl != nullptr && !HandshakeOf(ssl)->unknown.empty() && SSL_is_init_finished(ssl) != 1) {
    text += std::format("; it calls itself '{}'", HandshakeOf(ssl)->unknown);
  }
  return Error{CodeOf(code), std::format("{}: {}", what, text)};
}

}  // namespace xmpi::os
