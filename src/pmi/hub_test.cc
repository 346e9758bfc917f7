#include "pmi/hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pmi/limits.h"

namespace xmpi::pmi {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

FenceIn In(Generation generation, std::uint32_t n, std::vector<Put> puts = {}) {
  return {{generation, n}, std::move(puts)};
}

// Nothing, or the fence that opened; an error is a failure of the test.
std::optional<FenceOut> Enter(Hub& hub, SlotId slot, FenceIn fence) {
  const auto out = hub.OnFenceIn(slot, std::move(fence));
  EXPECT_TRUE(out.has_value()) << out.error().message;
  return out.value_or(std::nullopt);
}

TEST(Hub, OpensAFenceWhenEverySlotIsIn) {
  Hub hub(3);
  EXPECT_FALSE(Enter(hub, 2, In(1, 1, {{"c", "3"}})));
  EXPECT_FALSE(Enter(hub, 0, In(1, 1, {{"a", "1"}})));
  EXPECT_FALSE(hub.FenceOpen(1));
  const auto out = Enter(hub, 1, In(1, 1));
  ASSERT_TRUE(out);
  EXPECT_EQ(*out, (FenceOut{{1, 1}, {{"a", "1"}, {"c", "3"}}}));
  EXPECT_TRUE(hub.FenceOpen(1));
}

TEST(Hub, OneSlotOpensAtOnce) {
  Hub hub(1);
  EXPECT_TRUE(Enter(hub, 0, In(1, 1)));
  EXPECT_TRUE(Enter(hub, 0, In(1, 2)));
}

TEST(Hub, AnswersAnyReplayWithNothing) {
  Hub hub(2);
  EXPECT_FALSE(Enter(hub, 0, In(1, 1, {{"a", "1"}})));
  EXPECT_FALSE(Enter(hub, 0, In(1, 1, {{"a", "1"}})));
  EXPECT_EQ(Enter(hub, 1, In(1, 1))->puts.size(), 1u) << "the replay added nothing";
  EXPECT_FALSE(Enter(hub, 0, In(1, 1, {{"a", "1"}}))) << "after it opened";
  EXPECT_FALSE(Enter(hub, 1, In(1, 2)));
  EXPECT_TRUE(Enter(hub, 0, In(1, 2))) << "the late replay has not left slot 0 in a fence";
}

TEST(Hub, ALaterGenerationWaitsForAllSlots) {
  Hub hub(2);
  Enter(hub, 0, In(1, 1));
  Enter(hub, 1, In(1, 1));
  EXPECT_FALSE(Enter(hub, 0, In(2, 1)));
  EXPECT_FALSE(hub.FenceOpen(2));
  EXPECT_THAT(hub.Absent(), ElementsAre(1));
  EXPECT_TRUE(Enter(hub, 1, In(2, 1)));
  EXPECT_TRUE(hub.FenceOpen(2));
  EXPECT_TRUE(hub.FenceOpen(1)) << "an old one has not closed";
}

TEST(Hub, SaysWhenSlotsWaitForEver) {
  Hub hub(2);
  Enter(hub, 0, In(1, 2));
  const auto out = hub.OnFenceIn(1, In(2, 1));
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, ErrorCode::kProtocol);
  EXPECT_THAT(out.error().message, HasSubstr("slot 0 in fence 2 of generation 1, slot 1 in fence 1 "
                                             "of generation 2"));
}

TEST(Hub, RefusesASlotThatDoesNotWait) {
  Hub hub(2);
  Enter(hub, 0, In(1, 1));
  const auto out = hub.OnFenceIn(0, In(1, 2));
  ASSERT_FALSE(out);
  EXPECT_THAT(out.error().message, HasSubstr("slot 0 entered fence 2 of generation 1 while"));
}

TEST(Hub, RefusesPutsBeyondTheLimits) {
  Hub hub(1);
  EXPECT_FALSE(hub.OnFenceIn(0, In(1, 1, {{std::string(kMaxKeyBytes, 'k'), "v"}})));
  EXPECT_FALSE(hub.OnFenceIn(0, In(1, 1, {{"k", std::string(kMaxValueBytes, 'v')}})));
}

// Design: before the new generation's first fence opens, a lost target gives the slot back; its
// puts are dropped and the originals join the same fence.
TEST(Hub, ALostTargetsPutsAreDropped) {
  Hub hub(2);
  Enter(hub, 0, In(2, 1, {{"a", "target"}}));
  ASSERT_TRUE(hub.DropSlot(0, 2));
  EXPECT_FALSE(Enter(hub, 1, In(2, 1, {{"b", "stays"}}))) << "slot 0 is not in any more";
  const auto out = Enter(hub, 0, In(2, 1, {{"a", "original"}}));
  ASSERT_TRUE(out);
  EXPECT_EQ(out->puts, (std::vector<Put>{{"a", "original"}, {"b", "stays"}}));
}

TEST(Hub, ASlotThatHasNotJoinedYetCanBeDroppedToo) {
  Hub hub(2);
  EXPECT_TRUE(hub.DropSlot(0, 2));
  EXPECT_FALSE(Enter(hub, 1, In(2, 1)));
  EXPECT_TRUE(Enter(hub, 0, In(2, 1)));
}

TEST(Hub, DropsOnlyTheNamedGeneration) {
  Hub hub(2);
  Enter(hub, 0, In(1, 1));
  EXPECT_TRUE(hub.DropSlot(0, 2));
  EXPECT_TRUE(Enter(hub, 1, In(1, 1)));
}

TEST(Hub, AfterTheFirstFenceOpenedNothingIsDropped) {
  Hub hub(2);
  Enter(hub, 0, In(2, 1));
  Enter(hub, 1, In(2, 1));
  const auto refused = hub.DropSlot(0, 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
}

TEST(Hub, AbsentIsEmptyWhileNobodyWaits) { EXPECT_THAT(Hub(2).Absent(), IsEmpty()); }

TEST(Hub, NamesAreUniqueUntilUnpublished) {
  Hub hub(1);
  EXPECT_FALSE(hub.Lookup("ocean"));
  EXPECT_TRUE(hub.Publish("ocean", "port one"));
  EXPECT_FALSE(hub.Publish("ocean", "port two"));
  EXPECT_EQ(*hub.Lookup("ocean"), "port one");
  EXPECT_TRUE(hub.Unpublish("ocean"));
  EXPECT_FALSE(hub.Unpublish("ocean"));
  EXPECT_FALSE(hub.Lookup("ocean"));
}

TEST(Hub, NamesAreBounded) {
  Hub hub(1);
  EXPECT_FALSE(hub.Publish(std::string(kMaxServiceBytes + 1, 'n'), "p"));
  EXPECT_FALSE(hub.Publish("n", std::string(kMaxPortBytes + 1, 'p')));
  for (std::size_t i = 0; i < kMaxPublishedNames; ++i) {
    ASSERT_TRUE(hub.Publish("name" + std::to_string(i), "p"));
  }
  EXPECT_FALSE(hub.Publish("one more", "p"));
  EXPECT_TRUE(hub.Unpublish("name0"));
  EXPECT_TRUE(hub.Publish("one more", "p"));
}

}  // namespace
}  // namespace xmpi::pmi
