#include "pmi/mapping.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace xmpi::pmi {
namespace {

using Slots = std::vector<SlotId>;

TEST(BuildMapping, JoinsSlotsOfEqualSize) {
  EXPECT_EQ(*BuildMapping({0}), "(vector,(0,1,1))");
  EXPECT_EQ(*BuildMapping({0, 0}), "(vector,(0,1,2))");
  EXPECT_EQ(*BuildMapping({0, 0, 1, 1}), "(vector,(0,2,2))");
  EXPECT_EQ(*BuildMapping({0, 0, 1, 1, 2, 2}), "(vector,(0,3,2))");
}

TEST(BuildMapping, WritesUnevenSlotsAsBlocks) {
  EXPECT_EQ(*BuildMapping({0, 0, 0, 1, 1, 2, 2, 3}), "(vector,(0,1,3),(1,2,2),(3,1,1))");
  EXPECT_EQ(*BuildMapping({1, 1, 0, 0}), "(vector,(1,1,2),(0,1,2))");
}

TEST(BuildMapping, WritesARoundOnce) {
  EXPECT_EQ(*BuildMapping({0, 1, 0, 1}), "(vector,(0,2,1))");
  EXPECT_EQ(*BuildMapping({0, 0, 1, 0, 0, 1}), "(vector,(0,1,2),(1,1,1))");
  EXPECT_EQ(*BuildMapping({0, 0, 1, 1, 0}), "(vector,(0,2,2))");
}

TEST(BuildMapping, FitsAFewHundredSlotsAndRefusesWhatDoesNotFit) {
  Slots even, odd;
  for (SlotId slot = 0; slot < 400; ++slot) {
    even.insert(even.end(), 64, slot);
    odd.insert(odd.end(), 1 + slot % 2 + slot % 3, slot);
  }
  EXPECT_EQ(*BuildMapping(even), "(vector,(0,400,64))");
  const auto refused = BuildMapping(odd);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
}

TEST(ParseMapping, RepeatsTheListUntilAllRanksArePlaced) {
  EXPECT_EQ(*ParseMapping("(vector,(0,2,1))", 5), (Slots{0, 1, 0, 1, 0}));
}

TEST(ParseMapping, ReadsTheShortFormOfOneRank) {
  EXPECT_EQ(*ParseMapping("(vector,(0,1,2),1)", 3), (Slots{0, 0, 1}));
}

TEST(ParseMapping, RefusesOtherText) {
  for (const char* text :
       {"", "(vector)", "(vector,)", "(vector,(0,1,1)", "(vector,(0,1,1))x", "(vector,(0,1))",
        "(vector,(0,0,1))", "(vector,(0,1,0))", "(vector,(a,1,1))", "(matrix,(0,1,1))"}) {
    EXPECT_FALSE(ParseMapping(text, 2)) << text;
  }
}

RC_GTEST_PROP(Mapping, ReadsBackWhatItWrote, ()) {
  const auto slot_of_rank = *rc::gen::nonEmpty(
      rc::gen::container<Slots>(rc::gen::inRange<SlotId>(0, *rc::gen::inRange(1, 6))));
  const auto mapping = BuildMapping(slot_of_rank);
  RC_ASSERT(mapping.has_value());
  RC_ASSERT(*ParseMapping(*mapping, slot_of_rank.size()) == slot_of_rank);
}

}  // namespace
}  // namespace xmpi::pmi
