#include "wire/rank_link.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace xmpi::rank_link {
namespace {

std::vector<Message> OneOfEach() {
  return {
      {.kind = Kind::kHello, .thread = 12, .rank = 3, .version = 100, .signal = 12, .text = "note"},
      {.kind = Kind::kNoticed, .migration = 1, .passed = 1ull << 40},
      {.kind = Kind::kArrived, .migration = 1, .passed = 7, .refused = true, .text = "pending"},
      {.kind = Kind::kChecked, .migration = 1},
      {.kind = Kind::kParked, .migration = 1},
      {.kind = Kind::kRunning, .migration = 1, .passed = 7, .rebuilt = true},
      {.kind = Kind::kResumed, .migration = 1, .passed = 7},
      {.kind = Kind::kFinalizing, .passed = 9},
      {.kind = Kind::kSockets, .text = "12 4711@10.0.0.1:80 4712"},
      {.kind = Kind::kNotice, .migration = 0xffffffff},
      {.kind = Kind::kAgree, .migration = 1, .stop_call = 8},
      {.kind = Kind::kCheck, .migration = 1},
      {.kind = Kind::kTeardown, .migration = 1},
      {.kind = Kind::kCancel, .migration = 1, .text = "why"},
      {.kind = Kind::kEnv, .migration = 1, .name = "PMI_HOSTNAME", .text = "node2"},
      {.kind = Kind::kContinue, .migration = 1},
  };
}

void ExpectSame(const Message& a, const Message& b) {
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.slot, b.slot);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.migration, b.migration);
  EXPECT_EQ(a.attempt, b.attempt);
  EXPECT_EQ(a.passed, b.passed);
  EXPECT_EQ(a.stop_call, b.stop_call);
  EXPECT_EQ(a.thread, b.thread);
  EXPECT_EQ(a.rank, b.rank);
  EXPECT_EQ(a.version, b.version);
  EXPECT_EQ(a.signal, b.signal);
  EXPECT_EQ(a.refused, b.refused);
  EXPECT_EQ(a.rebuilt, b.rebuilt);
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.text, b.text);
}

TEST(RankLink, EveryKindComesBackAsItWas) {
  char packet[kMessageLimit];
  for (Message message : OneOfEach()) {
    message.slot = 0x01020304, message.epoch = 5, message.attempt = 6;
    const std::size_t size = Encode(message, packet);
    ASSERT_GT(size, 0u) << Name(message.kind);
    const auto decoded = Decode(packet, size);
    ASSERT_TRUE(decoded) << Name(message.kind) << ": " << decoded.error();
    ExpectSame(message, *decoded);
    EXPECT_EQ(PeekKind(packet, kPeekSize), message.kind);
  }
}

TEST(RankLink, TheHeaderIsLittleEndianAndFixed) {
  char packet[kMessageLimit];
  ASSERT_EQ(Encode({.kind = Kind::kNotice, .slot = 0x01020304, .migration = 9}, packet),
            kHeaderSize);
  EXPECT_EQ(std::string(packet, 16), std::string("XRLK\1\0\x41\0\x48\0\0\0\4\3\2\1", 16));
}

TEST(RankLink, TextIsCutButEnvIsNot) {
  char packet[kMessageLimit];
  const std::string lengthy(3 * kMessageLimit, 'x');
  EXPECT_EQ(Encode({.kind = Kind::kCancel, .migration = 1, .text = lengthy}, packet),
            kMessageLimit);
  EXPECT_TRUE(Decode(packet, kMessageLimit));
  EXPECT_EQ(Encode({.kind = Kind::kEnv, .migration = 1, .name = "A", .text = lengthy}, packet), 0u);
}

TEST(RankLink, AMessageWithAFaultIsNotWritten) {
  char packet[kMessageLimit];
  for (const Message& bad : std::vector<Message>{
           {},
           {.kind = Kind::kNotice},
           {.kind = Kind::kNotice, .migration = 1, .passed = 2},
           {.kind = Kind::kAgree, .migration = 1},
           {.kind = Kind::kArrived, .migration = 1, .refused = true},
           {.kind = Kind::kEnv, .migration = 1, .text = "nameless"},
           {.kind = Kind::kEnv, .migration = 1, .name = "A=B"},
           {.kind = Kind::kEnv, .migration = 1, .name = "A", .text = std::string_view("a\0b", 3)},
           {.kind = Kind::kParked, .migration = 1, .text = "text"},
           {.kind = Kind::kHello, .rank = 1},
       })
    EXPECT_EQ(Encode(bad, packet), 0u);
}

TEST(RankLink, EveryTruncationAndExtensionIsRefused) {
  char packet[kMessageLimit] = {};
  for (const Message& message : OneOfEach()) {
    const std::size_t size = Encode(message, packet);
    for (std::size_t wrong = 0; wrong <= size + 8; ++wrong) {
      if (wrong == size) continue;
      EXPECT_FALSE(Decode(packet, wrong));
    }
  }
  EXPECT_FALSE(Decode(packet, kMessageLimit + 1));
  EXPECT_EQ(PeekKind(packet, kPeekSize - 1), Kind{});
}

// Any change of bytes is either refused or gives a message that would be written the same.
TEST(RankLink, WhateverIsAcceptedIsWellFormed) {
  std::mt19937 random(1);
  char packet[kMessageLimit];
  char again[kMessageLimit];
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    const auto messages = OneOfEach();
    const std::size_t size = Encode(messages[random() % messages.size()], packet);
    for (int changes = static_cast<int>(random() % 4); changes >= 0; --changes)
      packet[random() % size] = static_cast<char>(random());
    const auto decoded = Decode(packet, size);
    if (!decoded) continue;
    ++accepted;
    ASSERT_EQ(Encode(*decoded, again), size);
    ASSERT_EQ(std::string(again, size), std::string(packet, size));
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace xmpi::rank_link
