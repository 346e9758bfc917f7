#include "launcher/hosts.h"

#include <gtest/gtest.h>

namespace xmpi::launcher {
namespace {

using Hosts = std::vector<Host>;

TEST(Hosts, AListHasOneEntryPerOccurrence) {
  EXPECT_EQ(*ParseHostList("h1:2,h2,h1"), (Hosts{{"h1", 2}, {"h2", 0}, {"h1", 0}}));
  EXPECT_EQ(*ParseHostList("10.0.0.1:4"), (Hosts{{"10.0.0.1", 4}}));
  EXPECT_EQ(*ParseHostList("[fd00::1]:2,fd00::2,[fd00::3]"),
            (Hosts{{"fd00::1", 2}, {"fd00::2", 0}, {"fd00::3", 0}}));
  EXPECT_EQ(*ParseHostList("user@h1 , h2"), (Hosts{{"user@h1", 0}, {"h2", 0}}));
}

TEST(Hosts, WhatIsNoHostIsRefusedByName) {
  for (const char* text :
       {"", ",", "h1,,h2", "h1:", "h1:0", "h1:x", "h1:-1", "h1:99999", "-oProxyCommand=x", "a b",
        "h1;ls", "[fd00::1", "[fd00::1]2", "[fd00::1]:", "h1:2:"})
    EXPECT_FALSE(ParseHostList(text)) << text;
  EXPECT_NE(ParseHostList("h1:x").error().message.find("h1:x"), std::string::npos);
  EXPECT_FALSE(ParseHostList(std::string(300, 'h')));
}

TEST(Hosts, SparesHaveNoCounts) {
  EXPECT_EQ(*ParseNodeList("a,b"), (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(ParseNodeList("a:2"));
}

TEST(Hosts, AHostfileMayHaveCommentsBlanksAndCarriageReturns) {
  const auto hosts = ParseHostfile("# my hosts\r\n\r\n  node1:4   # big\r\nnode2\r\n\tnode3:2");
  ASSERT_TRUE(hosts) << hosts.error().message;
  EXPECT_EQ(*hosts, (Hosts{{"node1", 4}, {"node2", 0}, {"node3", 2}}));
}

TEST(Hosts, LinesThatRepeatAHostAddUp) {
  EXPECT_EQ(*ParseHostfile("a\na\nb:3\na\nb:2\n"), (Hosts{{"a", 3}, {"b", 5}}));
}

TEST(Hosts, AHostfilesErrorNamesTheLine) {
  const auto bad = ParseHostfile("a\n# x\nb:zero\n");
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().message.find("line 3"), std::string::npos) << bad.error().message;
  EXPECT_EQ(bad.error().code, ErrorCode::kUsage);
  const auto other = ParseHostfile("a slots=4\n");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().message, "line 1: 'a slots=4' is not of the form HOST or HOST:COUNT");
  EXPECT_FALSE(ParseHostfile("# nothing\n"));
  const auto missing = ReadHostfile("/nowhere/hosts");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("/nowhere/hosts"), std::string::npos);
  EXPECT_EQ(missing.error().code, ErrorCode::kUsage);
}

}  // namespace
}  // namespace xmpi::launcher
