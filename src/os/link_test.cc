#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "os/link_test_support.h"

namespace xmpi::os {
namespace {

using namespace os::testing;
using ::testing::HasSubstr;

TEST(Link, CarriesMessagesBothWaysInOrder) {
  Ends ends;
  EXPECT_TRUE(ends.server->Send(Ends::kProxy, Control(1)));  // before anybody dialled
  ends.Dial();
  EXPECT_TRUE(ends.client->Send(Control(1)));
  for (std::uint64_t i = 2; i <= 1000; ++i) {
    ASSERT_TRUE(ends.server->Send(Ends::kProxy, Control(i)));
    ASSERT_TRUE(ends.client->Send(Control(i)));
  }
  ASSERT_TRUE(ends.Until([&] {
    return ends.at_proxy.control.size() >= 1000 && ends.at_launcher.control.size() >= 1000;
  }));
  EXPECT_EQ(ends.at_proxy.control, Numbers(1000));
  EXPECT_EQ(ends.at_launcher.control, Numbers(1000));
  EXPECT_EQ(ends.at_proxy.address, "127.0.0.1");
  EXPECT_EQ(ends.at_launcher.address, "127.0.0.1");
  EXPECT_EQ(ends.server->strangers(), 0u);
  EXPECT_EQ(ends.server->refused(), 0u);
}

TEST(Link, CarriesTheLargestMessage) {
  Ends ends;
  ends.Dial();
  ASSERT_TRUE(ends.client->Send(Control(1, 31u << 20)));
  EXPECT_FALSE(ends.client->Send(Control(2, 33u << 20)));
  ASSERT_TRUE(ends.Until([&] { return ends.at_launcher.control.size() == 1; }));
}

TEST(Link, AFloodOfOutputNeitherDelaysControlNorGrowsMemory) {
  Ends ends;
  ends.write_out = false;  // the launcher's terminal hangs
  ends.Dial();
  ASSERT_TRUE(ends.UntilUp());
  std::uint64_t sent = 0;
  while (ends.client->StdioRoom() > 0) ASSERT_TRUE(ends.client->SendStdio(Stdio(++sent, 60000)));
  EXPECT_EQ(sent, 18u);  // one window
  ASSERT_TRUE(ends.client->Send(Control(1)));
  ASSERT_TRUE(ends.server->Send(Ends::kProxy, Control(1)));
  ASSERT_TRUE(ends.Until(
      [&] { return ends.at_launcher.control.size() == 1 && ends.at_proxy.control.size() == 1; }));
  EXPECT_EQ(ends.at_proxy.rooms, 0);
  ASSERT_TRUE(ends.Until([&] { return ends.at_launcher.stdio.size() == sent; }));
  ends.server->StdioDone(Ends::kProxy, sent);
  ASSERT_TRUE(ends.Until([&] { return ends.at_proxy.rooms == 1; }));
  EXPECT_EQ(ends.client->StdioRoom(), static_cast<std::int64_t>(limits::kStdioWindowBytes));
}

TEST(Link, ANoticeOvertakesOutputThatWaits) {
  Ends ends;
  ends.Dial();
  ASSERT_TRUE(ends.UntilUp());
  for (std::uint64_t i = 1; i <= 16; ++i) ASSERT_TRUE(ends.client->SendStdio(Stdio(i, 60000)));
  ASSERT_TRUE(ends.client->Send(Control(1)));
  ASSERT_TRUE(ends.Until([&] { return ends.at_launcher.control.size() == 1; }));
  EXPECT_LT(ends.at_launcher.stdio.size(), 16u);
}

TEST(Link, NothingIsLostOrDoubledAcrossManyCuts) {
  LinkTimeouts timeouts;
  timeouts.redial_pause = 1ms;
  Ends ends(timeouts);
  Relay relay(ends.loop, ends.server->port());
  ends.Dial(relay.port());
  ASSERT_TRUE(ends.UntilUp());
  std::minstd_rand random(7);
  std::uint64_t control = 0;
  std::uint64_t stdio = 0;
  for (int round = 0; round < 60; ++round) {
    const int ups = ends.at_launcher.ups;
    for (int i = 0; i < 20; ++i) {
      ++control;
      ASSERT_TRUE(ends.client->Send(Control(control, random() % 3000)));
      ASSERT_TRUE(ends.server->Send(Ends::kProxy, Control(control)));
      if (ends.client->StdioRoom() > 0) {
        ASSERT_TRUE(ends.client->SendStdio(Stdio(++stdio, random() % 60000)));
      }
    }
    for (unsigned steps = random() % 60; steps > 0; --steps) ends.loop.poll_one();
    switch (round % 3) {
      case 0:
        relay.CutAll();
        break;
      case 1:
        ends.client->Cut();
        break;
      case 2:
        ends.server->Cut(Ends::kProxy);
        break;
    }
    ASSERT_TRUE(ends.Until([&] { return ends.at_launcher.ups > ups; })) << round;
  }
  ASSERT_TRUE(ends.Until([&] {
    return ends.at_proxy.control.size() >= control && ends.at_launcher.control.size() >= control &&
           ends.at_launcher.stdio.size() >= stdio;
  }));
  EXPECT_EQ(ends.at_proxy.control, Numbers(control));
  EXPECT_EQ(ends.at_launcher.control, Numbers(control));
  EXPECT_EQ(ends.at_launcher.stdio, Numbers(stdio));
  EXPECT_TRUE(ends.at_proxy.lost.empty());
  EXPECT_GE(ends.at_proxy.downs, 55);
}

TEST(Link, ADeadLauncherIsKnownAtOnce) {
  Ends ends;  // with the timeouts of real life: 10 s of silence
  ends.Dial();
  ASSERT_TRUE(ends.UntilUp());
  const auto start = Clock::now();
  ends.server.reset();
  ASSERT_TRUE(ends.Until([&] { return !ends.at_proxy.lost.empty(); }));
  EXPECT_LT(Clock::now() - start, 5s);
  EXPECT_EQ(ends.at_proxy.lost[0].code, ErrorCode::kRefused);
  EXPECT_THAT(ends.at_proxy.lost[0].message, HasSubstr("the launcher refuses connections: port"));
  EXPECT_FALSE(ends.client->Send(Control(1)));
}

TEST(Link, ALauncherThatWasNeverThereIsKnownAtOnce) {
  Ends ends;
  const std::uint16_t port = ends.server->port();
  ends.server.reset();
  ends.Dial(port);
  ASSERT_TRUE(ends.Until([&] { return !ends.at_proxy.lost.empty(); }));
  EXPECT_EQ(ends.at_proxy.lost[0].code, ErrorCode::kRefused);
}

TEST(Link, ASilentNetworkLosesTheProxyBeforeTheLauncherGivesItUp) {
  for (const auto& [to_server, to_client] : {std::pair(true, true), {true, false}, {false, true}}) {
    Ends ends(ShortTimeouts());
    Relay relay(ends.loop, ends.server->port());
    ends.Dial(relay.port());
    ASSERT_TRUE(ends.UntilUp());
    relay.Freeze(to_server, to_client);
    ASSERT_TRUE(
        ends.Until([&] { return !ends.at_proxy.lost.empty() && !ends.at_launcher.lost.empty(); }));
    EXPECT_EQ(ends.at_proxy.lost[0].code, ErrorCode::kTimeout);
    EXPECT_THAT(ends.at_proxy.lost[0].message, HasSubstr("not heard for 1500 ms"));
    EXPECT_THAT(ends.at_launcher.lost[0].message, HasSubstr("not heard for 2000 ms"));
    EXPECT_LT(ends.at_proxy.lost_at, ends.at_launcher.lost_at) << to_server << to_client;
  }
}

TEST(Link, AShortSilenceIsBridged) {
  Ends ends(ShortTimeouts());
  Relay relay(ends.loop, ends.server->port());
  ends.Dial(relay.port());
  ASSERT_TRUE(ends.UntilUp());
  relay.Freeze(true, true);
  ASSERT_TRUE(ends.client->Send(Control(1)));
  ASSERT_TRUE(ends.server->Send(Ends::kProxy, Control(1)));
  ASSERT_TRUE(ends.Until([&] { return ends.at_proxy.downs > 0; }));  // given up and redialled
  relay.Freeze(false, false);
  ASSERT_TRUE(ends.Until(
      [&] { return ends.at_launcher.control.size() == 1 && ends.at_proxy.control.size() == 1; }));
  EXPECT_TRUE(ends.at_proxy.lost.empty());
  EXPECT_TRUE(ends.at_launcher.lost.empty());
}

TEST(Link, AForgottenProxyIsToldAtOnce) {
  Ends ends;
  ends.Dial();
  ASSERT_TRUE(ends.UntilUp());
  ends.server->Forget(Ends::kProxy);
  EXPECT_FALSE(ends.server->Send(Ends::kProxy, Control(1)));
  ASSERT_TRUE(ends.Until([&] { return !ends.at_proxy.lost.empty(); }));
  EXPECT_EQ(ends.at_proxy.lost[0].code, ErrorCode::kRefused);
  EXPECT_THAT(ends.at_proxy.lost[0].message, HasSubstr("does not accept this identity"));
  EXPECT_TRUE(ends.at_launcher.lost.empty());
}

TEST(Link, CloseByTheLauncherFlushesAndSaysWhy) {
  Ends ends;
  ends.Dial();
  ASSERT_TRUE(ends.UntilUp());
  ASSERT_TRUE(ends.server->Send(Ends::kProxy, Control(1)));
  ends.server->Close(Ends::kProxy, "the job has ended");
  ASSERT_TRUE(ends.Until([&] { return !ends.at_proxy.lost.empty(); }));
  EXPECT_EQ(ends.at_proxy.control, Numbers(1));
  EXPECT_EQ(ends.at_proxy.lost[0].message, "the peer closed the link: the job has ended");
  ASSERT_TRUE(ends.Until([&] { return !ends.server->Send(Ends::kProxy, Control(2)); }));
  EXPECT_TRUE(ends.at_launcher.lost.empty());
}

TEST(Link, CloseByTheProxyFlushesAndSaysWhy) {
  Ends ends;
  ends.Dial();
  bool closed = false;
  ASSERT_TRUE(ends.client->Send(Control(1)));
  ASSERT_TRUE(ends.client->SendStdio(Stdio(1, 60000)));
  ends.client->Close("all ranks ended", [&] { closed = true; });
  ASSERT_TRUE(ends.Until([&] { return closed && !ends.at_launcher.lost.empty(); }));
  EXPECT_EQ(ends.at_launcher.control, Numbers(1));
  EXPECT_EQ(ends.at_launcher.stdio, Numbers(1));
  EXPECT_EQ(ends.at_launcher.lost[0].message, "the peer closed the link: all ranks ended");
  EXPECT_TRUE(ends.at_proxy.lost.empty());
}

TEST(Link, TheLauncherMayForgetInsideACallback) {
  asio::io_context loop;
  const Secret secret = Secret::Random().value();
  std::unique_ptr<LinkServer> server;
  std::unique_ptr<LinkClient> client;
  int messages = 0;
  bool lost = false;
  LinkServer::Options options{.job = "job", .interface = "lo", .ports = {}, .timeouts = {}};
  server = LinkServer::Listen(loop, secret, options,
                              {.on_message =
                                   [&](ProxyId id, wire::Envelope) {
                                     ++messages;
                                     server->Forget(id);
                                   },
                               .on_up = [](ProxyId, std::string) {},
                               .on_down = [](ProxyId, std::string) {},
                               .on_lost = [](ProxyId, Error) { FAIL(); },
                               .on_stdio_room = [](ProxyId) {}})
               .value();
  server->Expect({1, 0, 0});
  client = LinkClient::Start(loop, secret,
                             {.job = "job",
                              .proxy = {1, 0, 0},
                              .addresses = {"127.0.0.1"},
                              .port = server->port(),
                              .timeouts = {}},
                             {.on_message = [](wire::Envelope) {},
                              .on_up = [](std::string) {},
                              .on_down = [](std::string) {},
                              .on_lost =
                                  [&](Error) {
                                    lost = true;
                                    client.reset();
                                  },
                              .on_stdio_room = [] {}})
               .value();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(client->Send(Control(1)));
  ASSERT_TRUE(RunUntil(loop, [&] { return lost; }));
  EXPECT_EQ(messages, 1);
}

TEST(Link, TheLauncherIsFoundBehindAnyOfItsAddresses) {
  Ends ends;
  auto options = ends.ClientOptions();
  // Nobody listens on the first, the second is no host, the third belongs to another program.
  asio::ip::tcp::acceptor other(
      ends.loop, tcp::endpoint(asio::ip::make_address("127.0.0.9"), ends.server->port()));
  options.addresses = {"127.0.0.7", "192.0.2.1", "127.0.0.9", "127.0.0.1"};
  ends.client = LinkClient::Start(ends.loop, ends.secret, options,
                                  ends.ClientEvents(&ends.at_proxy, &ends.client))
                    .value();
  ASSERT_TRUE(ends.UntilUp());
  EXPECT_EQ(ends.at_proxy.address, "127.0.0.1");
}

}  // namespace
}  // namespace xmpi::os
