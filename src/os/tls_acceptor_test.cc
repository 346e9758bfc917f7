#include "os/tls_acceptor.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <optional>
#include <thread>

#include "base/limits.h"
#include "os/net.h"

namespace xmpi::os {
namespace {

using namespace std::chrono_literals;
using Clock = TlsAcceptor::Clock;

constexpr TlsSocket::Deadlines kPatient{60s, 60s};
constexpr char kIdentity[] = "job/1/image/1.1";

Secret Key() { return Secret::FromHex(std::string(64, 'a')).value(); }

struct Port {
  Listener listener = Listen("127.0.0.1", {}).value();
  TlsContext context = TlsContext::Server([](std::string_view identity) {
                         return identity == kIdentity ? std::optional(Key()) : std::nullopt;
                       }).value();
  std::vector<std::string> refusals;
  std::function<void(const Error&)> on_refused = [this](const Error& error) {
    refusals.push_back(error.message);
  };

  Fd Connect() const {
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(listener.port);
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
    return fd;
  }
};

TEST(TlsAcceptor, StrangersDoNotDelayTheRightPeer) {
  Port port;
  std::vector<Fd> strangers;
  for (int i = 0; i < 40; ++i) {
    strangers.push_back(port.Connect());
    const std::string_view words[] = {"", "GET / HTTP/1.0\r\n\r\n", "\x16\x03\x01\x02"};
    const std::string_view text = words[i % 3];
    if (!text.empty()) {
      EXPECT_GT(::send(strangers.back().get(), text.data(), text.size(), 0), 0);
    }
  }
  Fd right = port.Connect();
  std::thread peer([&] {
    const auto context = TlsContext::Client(kIdentity, Key()).value();
    EXPECT_TRUE(TlsSocket::Connect(context, std::move(right), kPatient));
  });
  TlsAcceptor acceptor(port.context, port.listener.socket, kPatient);
  const auto socket = acceptor.Accept(-1, Clock::now() + 60s, port.on_refused);
  ASSERT_TRUE(socket) << socket.error().message;
  EXPECT_EQ(socket->identity(), kIdentity);
  // Those that spoke no TLS were turned away; nobody waited for the others.
  EXPECT_LE(port.refusals.size(), 13u);
  peer.join();
}

TEST(TlsAcceptor, TheirNumberIsBounded) {
  Port port;
  std::vector<Fd> strangers;
  for (std::size_t i = 0; i < limits::kImageStrangers + 10; ++i)
    strangers.push_back(port.Connect());
  TlsAcceptor acceptor(port.context, port.listener.socket, kPatient);
  const Fd stop(::eventfd(0, EFD_CLOEXEC));
  const auto stop_when = [&](const Error& error) {
    port.on_refused(error);
    if (port.refusals.size() == 10) ::eventfd_write(stop.get(), 1);
  };
  const auto socket = acceptor.Accept(stop.get(), Clock::now() + 60s, stop_when);
  EXPECT_EQ(socket.error().code, ErrorCode::kRefused);
  EXPECT_THAT(port.refusals, testing::Each("too many connections that prove nothing"));
}

TEST(TlsAcceptor, SilenceEndsAtTheDeadline) {
  Port port;
  const Fd stranger = port.Connect();
  TlsAcceptor acceptor(port.context, port.listener.socket, {20ms, 60s});
  const Fd stop(::eventfd(0, EFD_CLOEXEC));
  const auto stop_when = [&](const Error& error) {
    port.on_refused(error);
    ::eventfd_write(stop.get(), 1);
  };
  EXPECT_FALSE(acceptor.Accept(stop.get(), Clock::now() + 60s, stop_when));
  EXPECT_THAT(port.refusals, testing::ElementsAre("it proved nothing in time"));
}

TEST(TlsAcceptor, NobodyAtAllIsATimeout) {
  Port port;
  TlsAcceptor acceptor(port.context, port.listener.socket, kPatient);
  const auto socket = acceptor.Accept(-1, Clock::now() + 20ms, port.on_refused);
  EXPECT_EQ(socket.error().code, ErrorCode::kTimeout);
}

}  // namespace
}  // namespace xmpi::os
