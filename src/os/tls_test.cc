// One side is ours; the other is ours too, or a plain OpenSSL peer set up wrongly on purpose.
#include "os/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <thread>
#include <vector>

#include "os/tls_socket.h"

namespace xmpi::os {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr TlsSocket::Deadlines kPatient{20s, 20s};
const std::string kHex(64, 'a');
const std::string kOtherHex(64, 'b');
constexpr char kIdentity[] = "job/1/control/0.0";

Secret KeyOf(const std::string& hex) { return Secret::FromHex(hex).value(); }

TlsContext ServerContext() {
  return TlsContext::Server([](std::string_view identity) -> std::optional<Secret> {
           if (identity != kIdentity) return std::nullopt;
           return KeyOf(kHex);
         })
      .value();
}
TlsContext ClientContext(const std::string& identity = kIdentity, const std::string& hex = kHex) {
  return TlsContext::Client(identity, KeyOf(hex)).value();
}

struct SocketPair {
  Fd server;
  Fd client;
  SocketPair() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    server = Fd(fds[0]);
    client = Fd(fds[1]);
  }
};

// What our server makes of a peer that does `peer` on the other end of the socket.
Result<TlsSocket> ServeTo(std::function<void(Fd)> peer, TlsSocket::Deadlines deadlines = kPatient) {
  SocketPair pair;
  std::thread thread([&] { peer(std::move(pair.client)); });
  const TlsContext context = ServerContext();
  auto result = TlsSocket::Accept(context, std::move(pair.server), deadlines);
  if (!result) pair.server.Close();
  thread.join();
  return result;
}
Result<TlsSocket> DialTo(std::function<void(Fd)> peer) {
  SocketPair pair;
  std::thread thread([&] { peer(std::move(pair.server)); });
  const TlsContext context = ClientContext();
  auto result = TlsSocket::Connect(context, std::move(pair.client), kPatient);
  thread.join();
  return result;
}

void SendAll(const Fd& fd, std::string_view text) {
  EXPECT_EQ(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
}
void ReadToEnd(const Fd& fd) {
  char buffer[4096];
  while (::recv(fd.get(), buffer, sizeof buffer, 0) > 0) continue;
}

// A stock OpenSSL peer on `fd`, configured by `configure`; runs its handshake to whatever end.
void StockPeer(Fd fd, const SSL_METHOD* method, std::function<void(SSL_CTX*)> configure) {
  SSL_CTX* context = SSL_CTX_new(method);
  configure(context);
  SSL* ssl = SSL_new(context);
  SSL_set_fd(ssl, fd.get());
  if (SSL_is_server(ssl)) {
    SSL_accept(ssl);
  } else {
    SSL_connect(ssl);
  }
  SSL_free(ssl);
  SSL_CTX_free(context);
}

void UseSelfSignedCertificate(SSL_CTX* context) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_sign(certificate, key, EVP_sha256());
  SSL_CTX_use_certificate(context, certificate);
  SSL_CTX_use_PrivateKey(context, key);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

TEST(Tls, TheRightKeyWorksBothWays) {
  SocketPair pair;
  const TlsContext client_context = ClientContext();
  std::thread client([&] {
    auto socket = TlsSocket::Connect(client_context, std::move(pair.client), kPatient).value();
    EXPECT_EQ(socket.identity(), kIdentity);
    std::vector<std::byte> bytes(3 << 20, std::byte{7});
    EXPECT_TRUE(socket.Write(bytes));
    EXPECT_TRUE(socket.ReadExactly(std::span(bytes).first(1)));
    EXPECT_EQ(bytes[0], std::byte{9});
    EXPECT_EQ(socket.Read(bytes).value(), 0u);
    EXPECT_EQ(socket.ReadExactly(bytes).error().message, "TLS read: the peer ended too early");
  });
  const TlsContext server_context = ServerContext();
  auto socket = TlsSocket::Accept(server_context, std::move(pair.server), kPatient).value();
  EXPECT_EQ(socket.identity(), kIdentity);
  std::vector<std::byte> bytes(3 << 20);
  EXPECT_TRUE(socket.ReadExactly(bytes));
  EXPECT_THAT(bytes, testing::Each(std::byte{7}));
  bytes[0] = std::byte{9};
  EXPECT_TRUE(socket.Write(std::span(bytes).first(1)));
  EXPECT_TRUE(socket.Finish());
  client.join();
}

TEST(Tls, AWrongKeyIsRefusedOnBothSides) {
  Error client_error;
  const auto server = ServeTo([&](Fd fd) {
    const TlsContext context = ClientContext(kIdentity, kOtherHex);
    client_error = TlsSocket::Connect(context, std::move(fd), kPatient).error();
  });
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, ErrorCode::kRefused);
  EXPECT_EQ(server.error().message,
            "TLS handshake: the peer does not have the key of its identity");
  EXPECT_EQ(client_error.code, ErrorCode::kRefused) << client_error.message;
}

TEST(Tls, AnUnknownIdentityIsNamed) {
  Error client_error;
  const auto server = ServeTo([&](Fd fd) {
    const TlsContext context = ClientContext("job/9/control/\x1b[1m");
    client_error = TlsSocket::Connect(context, std::move(fd), kPatient).error();
  });
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().message,
            "TLS handshake: the peer offered no pre-shared key that is known here; it calls itself "
            "'job/9/control/?[1m'");
  EXPECT_EQ(client_error.message,
            "TLS handshake: the peer does not accept this identity (it knows no such proxy, or no "
            "longer)");
}

TEST(Tls, AClientWithoutKeyIsRefused) {
  const auto server =
      ServeTo([](Fd fd) { StockPeer(std::move(fd), TLS_client_method(), [](SSL_CTX*) {}); });
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().message,
            "TLS handshake: the peer offered no pre-shared key that is known here");
}

TEST(Tls, AServerWithASelfSignedCertificateIsRefused) {
  const auto client = DialTo(
      [](Fd fd) { StockPeer(std::move(fd), TLS_server_method(), UseSelfSignedCertificate); });
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().message,
            "TLS handshake: the peer showed a certificate instead of the key");
}

TEST(Tls, AClientWithACertificateIsRefused) {
  const auto server = ServeTo(
      [](Fd fd) { StockPeer(std::move(fd), TLS_client_method(), UseSelfSignedCertificate); });
  EXPECT_FALSE(server);
}

TEST(Tls, OlderVersionsAreRefused) {
  const auto old = [](SSL_CTX* context) {
    SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
    UseSelfSignedCertificate(context);
  };
  const auto server = ServeTo([&](Fd fd) { StockPeer(std::move(fd), TLS_client_method(), old); });
  EXPECT_EQ(server.error().message, "TLS handshake: the peer does not speak TLS 1.3");
  const auto client = DialTo([&](Fd fd) { StockPeer(std::move(fd), TLS_server_method(), old); });
  EXPECT_EQ(client.error().message, "TLS handshake: the peer does not speak TLS 1.3");
}

TEST(Tls, PlainTextIsRefused) {
  for (const char* text :
       {"GET / HTTP/1.0\r\n\r\n", "SSH-2.0-OpenSSH_10.0\r\n", "cmd=init pmi_version=1\n"}) {
    const auto server = ServeTo([&](Fd fd) {
      SendAll(fd, text);
      ::shutdown(fd.get(), SHUT_WR);
      ReadToEnd(fd);
    });
    ASSERT_FALSE(server) << text;
    EXPECT_EQ(server.error().message, "TLS handshake: the peer does not speak TLS") << text;
  }
}

TEST(Tls, GarbageIsRefusedWithoutHarm) {
  unsigned seed = 1;
  for (int round = 0; round < 200; ++round) {
    std::string garbage(static_cast<std::size_t>(1 + round * 3), '\0');
    for (char& c : garbage) c = static_cast<char>((seed = seed * 1103515245 + 12345) >> 16);
    if (round % 2) garbage.replace(0, 3, "\x16\x03\x01");  // looks like a handshake record
    const auto server = ServeTo([&](Fd fd) {
      SendAll(fd, garbage);
      ::shutdown(fd.get(), SHUT_WR);
      ReadToEnd(fd);
    });
    ASSERT_FALSE(server);
    EXPECT_FALSE(server.error().message.empty());
  }
}

TEST(Tls, NothingAtAllIsACut) {
  const auto server = ServeTo([](Fd) {});
  EXPECT_EQ(server.error().message, "TLS handshake: the connection was cut");
  EXPECT_EQ(server.error().code, ErrorCode::kUnreachable);
}

// The first bytes that a right client sends.
std::string ClientHello() {
  SocketPair pair;
  const TlsContext context = ClientContext();
  std::thread client([&] { (void)TlsSocket::Connect(context, std::move(pair.client), kPatient); });
  std::string bytes(4096, '\0');
  bytes.resize(static_cast<std::size_t>(
      std::max<ssize_t>(0, ::recv(pair.server.get(), bytes.data(), bytes.size(), 0))));
  pair.server.Close();
  client.join();
  return bytes;
}

TEST(Tls, HalfAHandshakeEndsAtTheDeadline) {
  const std::string hello = ClientHello();
  ASSERT_GT(hello.size(), 100u);
  for (const std::size_t part : {std::size_t{0}, std::size_t{3}, hello.size() / 2, hello.size()}) {
    SocketPair pair;
    SendAll(pair.client, hello.substr(0, part));
    const TlsContext context = ServerContext();
    const auto server = TlsSocket::Accept(context, std::move(pair.server), {50ms, 20s});
    ASSERT_FALSE(server);
    EXPECT_EQ(server.error().message, "TLS handshake: no answer from the peer in time") << part;
    EXPECT_EQ(server.error().code, ErrorCode::kTimeout);
  }
}

TEST(Tls, ReplayedBytesOfARightClientAreRefused) {
  const std::string hello = ClientHello();
  const auto server = ServeTo([&](Fd fd) {
    SendAll(fd, hello);
    SendAll(fd, hello);
    ::shutdown(fd.get(), SHUT_WR);
    ReadToEnd(fd);
  });
  EXPECT_FALSE(server);
}

TEST(Tls, ACutIsNotAnEnd) {
  SocketPair pair;
  const TlsContext client_context = ClientContext();
  std::thread client(
      [&] { (void)TlsSocket::Connect(client_context, std::move(pair.client), kPatient); });
  const TlsContext server_context = ServerContext();
  auto socket = TlsSocket::Accept(server_context, std::move(pair.server), kPatient).value();
  client.join();
  std::byte byte;
  const auto read = socket.Read({&byte, 1});
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kUnreachable) << read.error().message;
  EXPECT_FALSE(socket.Write({&byte, 1}));  // and no SIGPIPE
}

struct Connected {
  TlsContext client_context = ClientContext();
  TlsContext server_context = ServerContext();
  std::optional<TlsSocket> client;
  std::optional<TlsSocket> server;
  explicit Connected(TlsSocket::Deadlines deadlines) {
    SocketPair pair;
    std::thread dial([&] {
      client = TlsSocket::Connect(client_context, std::move(pair.client), deadlines).value();
    });
    server = TlsSocket::Accept(server_context, std::move(pair.server), deadlines).value();
    dial.join();
  }
};

TEST(Tls, NoProgressIsATimeout) {
  Connected pair({20s, 50ms});
  std::vector<std::byte> bytes(16 << 20);
  EXPECT_EQ(pair.server->Read(bytes).error().code, ErrorCode::kTimeout);
  EXPECT_EQ(pair.client->Write(bytes).error().code, ErrorCode::kTimeout);
}

TEST(Tls, AbortWakesABlockedThread) {
  Connected pair(kPatient);
  std::thread blocked([&] {
    std::byte byte;
    EXPECT_FALSE(pair.server->Read({&byte, 1}));
  });
  pair.server->Abort();
  blocked.join();
}

}  // namespace
}  // namespace xmpi::os
