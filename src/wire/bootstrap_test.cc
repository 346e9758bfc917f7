#include "wire/bootstrap.h"

#include <gtest/gtest.h>

#include <string>

namespace xmpi::wire {
namespace {

Bootstrap Example() {
  Bootstrap bootstrap{.version = "0.1.0",
                      .job = "heat",
                      .proxy = {.slot = 3, .migration = 2, .attempt = 1},
                      .node = "node2",
                      .addresses = {"10.0.0.1", "fd00::1"},
                      .port = 4711,
                      .secret_hex = std::string(64, 'a'),
                      .interface = "eth0",
                      .port_range = "5000:5100",
                      .carry_files = false,
                      .log_level = "info",
                      .fault = "dump.before:error"};
  bootstrap.timeouts.link_timeout = std::chrono::milliseconds(1234);
  return bootstrap;
}

TEST(Bootstrap, ComesBackAsItWasWritten) {
  const std::string line = ToLine(Example());
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto parsed = ParseBootstrap(line);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->version, "0.1.0");
  EXPECT_EQ(parsed->job, "heat");
  EXPECT_EQ(parsed->proxy, (ProxyId{3, 2, 1}));
  EXPECT_EQ(parsed->node, "node2");
  EXPECT_EQ(parsed->addresses, Example().addresses);
  EXPECT_EQ(parsed->port, 4711);
  EXPECT_EQ(parsed->secret_hex, std::string(64, 'a'));
  EXPECT_EQ(parsed->interface, "eth0");
  EXPECT_EQ(parsed->port_range, "5000:5100");
  EXPECT_FALSE(parsed->carry_files);
  EXPECT_EQ(parsed->log_level, "info");
  EXPECT_EQ(parsed->fault, "dump.before:error");
  EXPECT_EQ(parsed->timeouts.link_timeout.count(), 1234);
  EXPECT_EQ(parsed->timeouts.ping_interval, LinkTimeouts{}.ping_interval);
}

TEST(Bootstrap, EveryFieldIsNeededAndNamedButNeverShown) {
  const std::string line = ToLine(Example());
  for (const char* field :
       {"version", "job", "slot", "migration", "attempt", "node", "addresses", "port", "secret",
        "timeouts_ms", "interface", "port_range", "carry_files", "log_level", "fault"}) {
    std::string damaged = line;
    const std::string key = std::string("\"") + field + "\"";
    damaged.replace(damaged.find(key), key.size(), "\"x\"");
    const auto parsed = ParseBootstrap(damaged);
    ASSERT_FALSE(parsed) << field;
    EXPECT_EQ(parsed.error().code, ErrorCode::kProtocol);
    EXPECT_NE(parsed.error().message.find(field), std::string::npos) << parsed.error().message;
    EXPECT_EQ(parsed.error().message.find("aaaa"), std::string::npos);
  }
}

TEST(Bootstrap, GarbageIsRefused) {
  for (const char* text : {"", "\n", "{", "[]", "{}", "ssh: hello", "{\"job\":3}"})
    EXPECT_FALSE(ParseBootstrap(text)) << text;
  EXPECT_FALSE(ParseBootstrap(std::string(kBootstrapBytes + 1, ' ')));
}

}  // namespace
}  // namespace xmpi::wire
