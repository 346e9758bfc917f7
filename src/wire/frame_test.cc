#include "wire/frame.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "base/limits.h"

namespace xmpi::wire {
namespace {

std::string Encoded(FrameKind kind, std::uint64_t number, std::string_view payload) {
  std::string out;
  AppendFrame(kind, number, payload, &out);
  return out;
}

std::string ErrorOf(std::string bytes) {
  FrameDecoder decoder;
  decoder.Feed(bytes);
  const auto frame = decoder.Next();
  return frame ? "no error" : frame.error().message;
}

TEST(Frame, HeaderIsAsDocumented) {
  EXPECT_EQ(Encoded(FrameKind::kControl, 0x0102, "ab"),
            std::string("\x02\0\0\0\x01\x02\0\0\x02\x01\0\0\0\0\0\0ab", 18));
}

TEST(Frame, WaitsForTheLastByte) {
  const std::string bytes = Encoded(FrameKind::kStdio, 3, "hello");
  FrameDecoder decoder;
  for (std::size_t i = 0; i + 1 < bytes.size(); ++i) {
    decoder.Feed(std::string_view(bytes).substr(i, 1));
    ASSERT_EQ(decoder.Next().value(), std::nullopt);
  }
  decoder.Feed(std::string_view(bytes).substr(bytes.size() - 1));
  const auto frame = decoder.Next().value();
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->payload, "hello");
  EXPECT_EQ(frame->number, 3u);
}

TEST(Frame, MalformedInputIsNamed) {
  std::string bytes = Encoded(FrameKind::kControl, 1, "x");
  bytes[4] = 9;
  EXPECT_EQ(ErrorOf(bytes),
            "frame of link version 9, this program speaks 1: install the same xmpi "
            "on every node");
  bytes = Encoded(FrameKind::kControl, 1, "x");
  bytes[5] = 8;
  EXPECT_EQ(ErrorOf(bytes), "frame of unknown kind 8");
  bytes[5] = 0;
  EXPECT_EQ(ErrorOf(bytes), "frame of unknown kind 0");
  bytes[5] = 2;
  bytes[7] = 1;
  EXPECT_EQ(ErrorOf(bytes), "frame with nonzero reserved bytes");
  bytes = Encoded(FrameKind::kControl, 1, "x");
  bytes[3] = '\x7f';
  EXPECT_EQ(ErrorOf(bytes), "frame of kind 2 with 2130706433 bytes, limit 33554432");
  bytes = Encoded(FrameKind::kPing, 1, "");
  bytes[0] = 1;
  EXPECT_EQ(ErrorOf(bytes), "frame of kind 5 with 1 bytes, limit 0");
  bytes = Encoded(FrameKind::kAck, 1, EncodeReceived({}));
  bytes[0] = 23;
  EXPECT_EQ(ErrorOf(bytes), "frame of kind 4 with 23 bytes, limit 24");
}

TEST(Frame, ErrorIsFinal) {
  FrameDecoder decoder;
  decoder.Feed(std::string(16, '\xff'));
  EXPECT_FALSE(decoder.Next());
  decoder.Feed(Encoded(FrameKind::kPing, 1, ""));
  EXPECT_FALSE(decoder.Next());
}

TEST(Frame, ReceivedRoundTrip) {
  const Received received{1, 0x1122334455667788, 3};
  EXPECT_EQ(DecodeReceived(EncodeReceived(received)).value(), received);
  EXPECT_FALSE(DecodeReceived("short"));
}

RC_GTEST_PROP(Frame, AnySplitGivesTheSameFrames, ()) {
  const auto payloads =
      *rc::gen::container<std::vector<std::string>>(rc::gen::arbitrary<std::string>());
  std::string bytes;
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    AppendFrame(FrameKind::kControl, i, payloads[i], &bytes);
  }
  FrameDecoder decoder;
  std::vector<std::string> seen;
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const auto piece = *rc::gen::inRange<std::size_t>(1, 40);
    decoder.Feed(rest.substr(0, piece));
    rest.remove_prefix(std::min(piece, rest.size()));
    for (auto frame = decoder.Next(); *frame; frame = decoder.Next()) {
      RC_ASSERT((*frame)->number == seen.size());
      seen.push_back((*frame)->payload);
    }
  }
  RC_ASSERT(seen == payloads);
}

}  // namespace
}  // namespace xmpi::wire
