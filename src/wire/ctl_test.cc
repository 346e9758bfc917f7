#include "wire/ctl.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace xmpi::wire {
namespace {

TEST(Ctl, RequestsComeBackAsTheyWereWritten) {
  const CtlRequest evacuate{
      .command = CtlRequest::Command::kEvacuate, .node = "node2", .to = "node5"};
  const auto parsed = ParseCtlRequest(ToLine(evacuate));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->command, CtlRequest::Command::kEvacuate);
  EXPECT_EQ(parsed->node, "node2");
  EXPECT_EQ(parsed->to, "node5");
  for (const auto command : {CtlRequest::Command::kStatus, CtlRequest::Command::kCancel}) {
    const auto plain = ParseCtlRequest(ToLine(CtlRequest{.command = command}));
    ASSERT_TRUE(plain);
    EXPECT_EQ(plain->command, command);
  }
}

TEST(Ctl, EvacuateWithoutTargetLeavesItOpen) {
  const auto parsed = ParseCtlRequest(R"({"command":"evacuate","node":"n1"})");
  ASSERT_TRUE(parsed);
  EXPECT_FALSE(parsed->to);
}

TEST(Ctl, BadRequestsAreErrors) {
  for (const char* line : {"", "x", "[]", "{}", R"({"command":3})", R"({"command":"fly"})",
                           R"({"command":"evacuate"})", R"({"command":"evacuate","node":""})",
                           R"({"command":"evacuate","node":"a","to":1})"})
    EXPECT_FALSE(ParseCtlRequest(line)) << line;
  EXPECT_FALSE(ParseCtlRequest(std::string(kCtlRequestBytes + 1, ' ')));
}

TEST(Ctl, AnswersAreOneLineEach) {
  EXPECT_EQ(CtlError("no\nsuch"), "{\"error\":\"no\\nsuch\"}\n");
  EXPECT_EQ(CtlResult({{"ok", true}}), "{\"result\":{\"ok\":true}}\n");
  EXPECT_EQ(CtlEvent({{"event", "dump.begin"}}), "{\"event\":{\"event\":\"dump.begin\"}}\n");
}

}  // namespace
}  // namespace xmpi::wire
