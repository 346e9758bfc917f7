// Case 31 of the field: a stranger connects, with a wrong secret, replayed bytes, garbage, nothing
// at all, ten thousand times; and the job does not notice.
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "os/link_test_support.h"

namespace xmpi::os {
namespace {

using namespace os::testing;
using ::testing::HasSubstr;

std::size_t OpenFds() {
  std::size_t count = 0;
  DIR* directory = ::opendir("/proc/self/fd");
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  return count;
}

TEST(Stranger, AWrongSecretIsRefusedWithoutHarm) {
  Ends ends;
  ends.Dial();
  ASSERT_TRUE(ends.UntilUp());
  Seen seen;
  std::unique_ptr<LinkClient> stranger;
  stranger = LinkClient::Start(ends.loop, Secret::Random().value(), ends.ClientOptions(),
                               ends.ClientEvents(&seen, &stranger))
                 .value();
  ASSERT_TRUE(ends.Until([&] { return !seen.lost.empty(); }));
  EXPECT_EQ(seen.ups, 0);
  EXPECT_EQ(seen.lost[0].code, ErrorCode::kRefused);
  EXPECT_EQ(ends.server->refused(), 1u);
  EXPECT_EQ(ends.at_launcher.downs, 0);
}

TEST(Stranger, AnUnexpectedProxyIsRefused) {
  Ends ends;
  Seen seen;
  std::unique_ptr<LinkClient> stranger;
  for (const ProxyId id : {ProxyId{2, 0, 0}, ProxyId{1, 1, 0}, ProxyId{1, 0, 1}}) {
    auto options = ends.ClientOptions();
    options.proxy = id;
    seen = {};
    stranger =
        LinkClient::Start(ends.loop, ends.secret, options, ends.ClientEvents(&seen, &stranger))
            .value();
    ASSERT_TRUE(ends.Until([&] { return !seen.lost.empty(); }));
    EXPECT_THAT(seen.lost[0].message, HasSubstr("does not accept this identity"));
  }
  EXPECT_EQ(ends.at_launcher.ups, 0);
}

TEST(Stranger, ASecondProcessCannotTakeTheSeat) {
  Ends ends;
  ends.Dial();
  ASSERT_TRUE(ends.UntilUp());
  Seen seen;
  std::unique_ptr<LinkClient> second;
  auto options = ends.ClientOptions();
  options.timeouts = ShortTimeouts();
  second =
      LinkClient::Start(ends.loop, ends.secret, options, ends.ClientEvents(&seen, &second)).value();
  ASSERT_TRUE(ends.Until([&] { return ends.server->refused() > 0; }));
  EXPECT_EQ(ends.at_launcher.downs, 0);
  EXPECT_EQ(seen.ups, 0);
  second.reset();
}

TEST(Stranger, ReplayedBytesAreRefused) {
  Ends ends;
  Relay relay(ends.loop, ends.server->port());
  ends.Dial(relay.port());
  ASSERT_TRUE(ends.client->Send(Control(1)));
  ASSERT_TRUE(ends.Until([&] { return ends.at_launcher.control.size() == 1; }));
  const std::string recorded = relay.heard();
  tcp::socket socket(ends.loop);
  socket.connect({asio::ip::address_v4::loopback(), ends.server->port()});
  asio::write(socket, asio::buffer(recorded));
  ASSERT_TRUE(ends.Until([&] { return ends.server->refused() == 1; }));
  EXPECT_EQ(ends.at_launcher.control.size(), 1u);
  EXPECT_EQ(ends.at_launcher.downs, 0);
}

TEST(Stranger, SilenceEndsAtTheDeadline) {
  Ends ends(ShortTimeouts());
  tcp::socket socket(ends.loop);
  socket.connect({asio::ip::address_v4::loopback(), ends.server->port()});
  ASSERT_TRUE(ends.Until([&] { return ends.server->strangers() == 1; }));
  ASSERT_TRUE(ends.Until([&] { return ends.server->strangers() == 0; }));
  EXPECT_EQ(ends.server->refused(), 1u);
}

TEST(Stranger, TenThousandCostBoundedMemoryAndDoNotDisturbTheJob) {
  Ends ends;
  ends.Dial();
  ASSERT_TRUE(ends.UntilUp());
  const std::size_t fds = OpenFds();
  const std::string half_a_hello = "\x16\x03\x01\x02";
  std::deque<std::unique_ptr<tcp::socket>> open;
  for (std::uint64_t i = 1; i <= 10000; ++i) {
    auto socket = std::make_unique<tcp::socket>(ends.loop);
    socket->connect({asio::ip::address_v4::loopback(), ends.server->port()});
    asio::error_code ignored;
    if (i % 3 == 1)
      asio::write(*socket, asio::buffer(std::string("GET / HTTP/1.0\r\n\r\n")), ignored);
    if (i % 3 == 2) asio::write(*socket, asio::buffer(half_a_hello), ignored);
    open.push_back(std::move(socket));
    if (open.size() > 300) open.pop_front();
    ASSERT_TRUE(ends.client->Send(Control(i)));
    ASSERT_TRUE(ends.server->Send(Ends::kProxy, Control(i)));
    ends.loop.poll();
    ASSERT_LE(ends.server->strangers(), limits::kStrangers);
    ASSERT_LT(OpenFds(), fds + 2 * limits::kStrangers + 350);
  }
  ASSERT_TRUE(ends.Until([&] {
    return ends.at_launcher.control.size() == 10000 && ends.at_proxy.control.size() == 10000;
  }));
  EXPECT_EQ(ends.at_launcher.downs, 0);
  // And a proxy that comes now is let in.
  ends.server->Expect({2, 0, 0});
  Seen seen;
  std::unique_ptr<LinkClient> late;
  auto options = ends.ClientOptions();
  options.proxy = {2, 0, 0};
  late =
      LinkClient::Start(ends.loop, ends.secret, options, ends.ClientEvents(&seen, &late)).value();
  ASSERT_TRUE(ends.Until([&] { return seen.ups == 1; }));
  open.clear();
  ASSERT_TRUE(ends.Until([&] { return ends.server->strangers() == 0; }));
  EXPECT_GE(ends.server->refused(), 9000u);
}

}  // namespace
}  // namespace xmpi::os
