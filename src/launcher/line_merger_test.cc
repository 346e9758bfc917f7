#include "launcher/line_merger.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace xmpi::launcher {
namespace {

TEST(LineMerger, ALineWaitsForItsNewline) {
  LineMerger merger(false);
  std::string out;
  merger.Add(0, "hello ", &out);
  merger.Add(1, "other\n", &out);
  EXPECT_EQ(out, "other\n");
  EXPECT_TRUE(merger.WantsTick());
  merger.Add(0, "world\nnext", &out);
  EXPECT_EQ(out, "other\nhello world\n");
  merger.End(0, &out);
  EXPECT_EQ(out, "other\nhello world\nnext");
  EXPECT_FALSE(merger.WantsTick());
}

TEST(LineMerger, APromptGoesOnWhenItHasNotGrownBetweenTwoTicks) {
  LineMerger merger(false);
  std::string out;
  merger.Add(0, "name? ", &out);
  merger.Tick(&out);
  EXPECT_EQ(out, "");
  merger.Tick(&out);
  EXPECT_EQ(out, "name? ");
  EXPECT_FALSE(merger.WantsTick());
  merger.Tick(&out);
  EXPECT_EQ(out, "name? ");
}

TEST(LineMerger, ALongLineDoesNotWait) {
  LineMerger merger(false);
  std::string out;
  merger.Add(0, std::string(LineMerger::kLongLineBytes, 'x'), &out);
  EXPECT_EQ(out.size(), 0u);
  merger.Add(0, "y", &out);
  EXPECT_EQ(out.size(), LineMerger::kLongLineBytes + 1);
  EXPECT_FALSE(merger.WantsTick());
}

TEST(LineMerger, LabelsEachLineOnce) {
  LineMerger merger(true);
  std::string out;
  merger.Add(12, "a\nb\n\nc", &out);
  EXPECT_EQ(out, "[12] a\n[12] b\n[12] \n");
  merger.Add(12, "d\n", &out);
  EXPECT_EQ(out, "[12] a\n[12] b\n[12] \n[12] cd\n");
}

TEST(LineMerger, AnUnfinishedLabelledLineIsClosedBeforeAnother) {
  LineMerger merger(true);
  std::string out;
  merger.Add(0, "name? ", &out);
  merger.Tick(&out);
  merger.Tick(&out);
  merger.Add(0, "still 0\n", &out);
  EXPECT_EQ(out, "[0] name? still 0\n");
  out.clear();
  merger.Add(0, "again? ", &out);
  merger.Tick(&out);
  merger.Tick(&out);
  merger.Add(1, "one\n", &out);
  merger.Add(0, "zero\n", &out);
  EXPECT_EQ(out, "[0] again? \n[1] one\n[0] zero\n");
}

TEST(LineMerger, EndAllLeavesNothingBehind) {
  LineMerger merger(false);
  std::string out;
  merger.Add(0, "a", &out);
  merger.Add(3, "b", &out);
  merger.EndAll(&out);
  EXPECT_EQ(out, "ab");
  EXPECT_FALSE(merger.WantsTick());
}

// Whatever the pieces: each rank's bytes arrive all and in order, and whole lines stay whole.
TEST(LineMerger, NothingIsLostOrMixedOverRandomPieces) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    LineMerger merger(false);
    std::map<RankId, std::string> sent;
    std::string out;
    for (int i = 0; i < 300; ++i) {
      const RankId rank = random() % 4;
      std::string piece;
      for (unsigned n = random() % 20; n > 0; --n)
        piece += random() % 8 == 0 ? '\n' : static_cast<char>('a' + rank);
      merger.Add(rank, piece, &out);
      sent[rank] += piece;
    }
    merger.EndAll(&out);
    std::size_t total = 0;
    for (auto& [rank, text] : sent) total += text.size();
    ASSERT_EQ(out.size(), total);
    // Each finished line holds letters of one rank only; only the tails of EndAll may share one.
    std::map<RankId, std::string> letters;
    std::size_t begin = 0;
    for (std::size_t end; (end = out.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const std::string line = out.substr(begin, end - begin);
      if (line.empty()) continue;
      EXPECT_EQ(line.find_first_not_of(line[0]), std::string::npos) << line;
    }
    for (const char letter : out) {
      if (letter != '\n') letters[static_cast<RankId>(letter - 'a')] += letter;
    }
    for (auto& [rank, text] : sent) {
      std::string wanted = text;
      std::erase(wanted, '\n');
      EXPECT_EQ(letters[rank], wanted);
    }
  }
}

}  // namespace
}  // namespace xmpi::launcher
