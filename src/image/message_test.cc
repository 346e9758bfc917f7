#include "image/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "image/assembler.h"
#include "image/source.h"
#include "image/testing.h"

namespace xmpi::image {
namespace {

TEST(Message, AnyLengthArrivesWhole) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kMaxPayloadBytes,
                                 kMaxPayloadBytes + 1, 3 * kMaxPayloadBytes}) {
    const std::string text(size, 'x');
    std::string stream;
    ASSERT_TRUE(SendMessage(AppendTo(&stream), ChunkKind::kFindings, text));
    std::string_view in = stream;
    const auto received = ReceiveMessage(TakeFrom(&in), ChunkKind::kFindings);
    ASSERT_TRUE(received) << received.error().message;
    EXPECT_EQ(*received, text);
    EXPECT_TRUE(in.empty());
  }
}

TEST(Message, OutOfOrderOrTooLongIsRefused) {
  const std::string text = "abc";
  const auto accept = [&](std::uint64_t offset, std::uint64_t total) {
    return MessageReader().Accept(
        {{.kind = ChunkKind::kFacts, .offset = offset, .length = 3, .total = total},
         AsBytes(text)});
  };
  EXPECT_TRUE(accept(0, 3));
  EXPECT_FALSE(accept(1, 4));
  EXPECT_FALSE(accept(0, 2));
  EXPECT_FALSE(accept(0, kMaxMessageBytes + 1));
}

TEST(Message, TheTargetAnswersFactsBeforeTheImages) {
  MemoryStorage storage;
  Assembler assembler(&storage, {}, 1 << 20);
  std::string stream, answer;
  ASSERT_TRUE(SendMessage(AppendTo(&stream), ChunkKind::kFacts, "facts"));
  ASSERT_TRUE(SendEnd(AppendTo(&stream)));
  std::string_view in = stream;
  ASSERT_TRUE(ReceiveImages(TakeFrom(&in), AppendTo(&answer), &assembler,
                            {.facts = [](const std::string& facts) -> Result<std::string> {
                               return "findings about " + facts;
                             },
                             .look = {}}));
  std::string_view back = answer;
  ASSERT_TRUE(ReceiveHoldings(TakeFrom(&back)));
  const auto findings = ReceiveMessage(TakeFrom(&back), ChunkKind::kFindings);
  ASSERT_TRUE(findings) << findings.error().message;
  EXPECT_EQ(*findings, "findings about facts");
  EXPECT_TRUE(ReceiveVerdict(TakeFrom(&back)));
}

TEST(Message, WithoutSomebodyToAnswerFactsAreRefused) {
  MemoryStorage storage;
  Assembler assembler(&storage, {}, 1 << 20);
  std::string stream, answer;
  ASSERT_TRUE(SendMessage(AppendTo(&stream), ChunkKind::kFacts, "facts"));
  std::string_view in = stream;
  const auto taken = ReceiveImages(TakeFrom(&in), AppendTo(&answer), &assembler);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kProtocol);
  std::string_view back = answer;
  ASSERT_TRUE(ReceiveHoldings(TakeFrom(&back)));
  EXPECT_EQ(ReceiveMessage(TakeFrom(&back), ChunkKind::kFindings).error().code,
            ErrorCode::kRefused);
}

}  // namespace
}  // namespace xmpi::image
