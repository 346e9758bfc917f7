#include "pmi/pmi1.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pmi/limits.h"

namespace xmpi::pmi {
namespace {

using testing::HasSubstr;

Message One(std::string_view bytes) {
  MessageReader reader;
  reader.Append(bytes);
  const auto message = reader.Next();
  EXPECT_TRUE(message && *message);
  return message && *message ? **message : Message{};
}

std::string ErrorOf(std::string_view bytes) {
  MessageReader reader;
  reader.Append(bytes);
  for (auto message = reader.Next(); true; message = reader.Next()) {
    if (!message) return message.error().message;
    if (!*message) return "";
  }
}

TEST(MessageReader, WaitsForTheNewline) {
  MessageReader reader;
  reader.Append("cmd=get_ma");
  EXPECT_FALSE(*reader.Next());
  reader.Append("xes\ncmd=");
  EXPECT_EQ((*reader.Next())->text, "cmd=get_maxes");
  EXPECT_FALSE(*reader.Next());
}

TEST(MessageReader, WaitsForTheBlocksEnd) {
  MessageReader reader;
  reader.Append("mcmd=spawn\nnprocs=2\nexecname=a b\n");
  EXPECT_FALSE(*reader.Next());
  reader.Append("endcmd\ncmd=finalize\n");
  const Message block = reader.Next().value().value();
  EXPECT_TRUE(block.multiline);
  EXPECT_EQ(block.text, "mcmd=spawn\nnprocs=2\nexecname=a b");
  EXPECT_EQ((*reader.Next())->text, "cmd=finalize");
}

TEST(MessageReader, TakesTheLongestLineAndNoLongerOne) {
  const std::string longest = "cmd=" + std::string(kMaxLineBytes - 4, 'x');
  EXPECT_EQ(ErrorOf(longest + "\n"), "");
  EXPECT_THAT(ErrorOf(longest + "x\n"), HasSubstr("line longer than 8192 bytes"));
  EXPECT_THAT(ErrorOf(longest + "x"), HasSubstr("line longer than 8192 bytes"))
      << "also while its end has not come";
}

TEST(MessageReader, BoundsABlock) {
  std::string block = "mcmd=spawn\n";
  while (block.size() < kMaxCommandBytes + kMaxLineBytes) {
    block += "arg=" + std::string(1000, 'x') + "\n";
  }
  EXPECT_THAT(ErrorOf(block), HasSubstr("command longer than 65536 bytes"));
}

TEST(MessageReader, RefusesZeroBytes) {
  EXPECT_THAT(ErrorOf(std::string_view("cmd=a\0b\n", 8)), HasSubstr("zero byte"));
}

TEST(MessageReader, ClearForgetsHalfALineAndHalfABlock) {
  MessageReader reader;
  reader.Append("mcmd=spawn\nhalf");
  EXPECT_FALSE(*reader.Next());
  reader.Clear();
  reader.Append("cmd=finalize\n");
  EXPECT_EQ((*reader.Next())->text, "cmd=finalize");
}

TEST(VerbOf, NeedsAPrefix) {
  EXPECT_EQ(*VerbOf(One("cmd=put key=a\n")), "put");
  EXPECT_EQ(*VerbOf(One("cmd=finalize\n")), "finalize");
  EXPECT_EQ(*VerbOf(One("mcmd=spawn\nnprocs=1\nendcmd\n")), "spawn");
  EXPECT_FALSE(VerbOf(One("\n")));
  EXPECT_FALSE(VerbOf(One("hello\n")));
}

TEST(Fields, AreWordsOfALine) {
  const Message message = One("cmd=put  kvsname=k key=a=b flag value=v \n");
  const auto fields = Fields::Parse(message, "");
  EXPECT_EQ(fields->Find("kvsname"), "k");
  EXPECT_EQ(fields->Find("key"), "a=b");
  EXPECT_EQ(fields->Find("flag"), "");
  EXPECT_EQ(fields->Find("value"), "v");
  EXPECT_EQ(fields->Find("cmd"), std::nullopt);
  EXPECT_FALSE(fields->Need("service"));
}

TEST(Fields, TheTextFieldTakesTheRestOfItsLine) {
  const Message message = One("cmd=put key=a value=one two=2  three \n");
  EXPECT_EQ(Fields::Parse(message, "value")->Find("value"), "one two=2  three ");
  const Message empty = One("cmd=put key=a value=\n");
  EXPECT_EQ(Fields::Parse(empty, "value")->Find("value"), "");
  const Message bare = One("cmd=put key=a value\n");
  EXPECT_EQ(Fields::Parse(bare, "value")->Find("value"), "");
}

TEST(Fields, AreLinesOfABlock) {
  const Message message = One("mcmd=spawn\nnprocs=2\nexecname=/a b/c=d\nendcmd\n");
  const auto fields = Fields::Parse(message, "");
  EXPECT_EQ(*fields->NeedInt("nprocs"), 2);
  EXPECT_EQ(fields->Find("execname"), "/a b/c=d");
}

TEST(Fields, RefusesWhatIsNoField) {
  EXPECT_FALSE(Fields::Parse(One("cmd=put =v\n"), ""));
  const Message message = One("cmd=init pmi_version=1x empty= big=99999999999\n");
  const auto fields = Fields::Parse(message, "");
  EXPECT_FALSE(fields->NeedInt("pmi_version"));
  EXPECT_FALSE(fields->NeedInt("empty"));
  EXPECT_FALSE(fields->NeedInt("big"));
}

TEST(Quoted, IsPrintableAndShort) {
  EXPECT_EQ(Quoted("a\n\"\x80"), "\"a\\x0a\\x22\\x80\"");
  EXPECT_EQ(Quoted(std::string(1000, 'x')), "\"" + std::string(kMaxQuotedBytes, 'x') + "\"...");
}

}  // namespace
}  // namespace xmpi::pmi
