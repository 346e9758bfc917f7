// When another round of pre-copy is worth while, what is predicted of the move, and the pace.
#include "proxy/precopy.h"

#include <gtest/gtest.h>

#include "proxy/pace.h"
#include "proxy/progress_meter.h"

namespace xmpi::proxy {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kMiB = 1u << 20;

Round RoundOf(std::uint64_t memory, std::uint64_t changed, milliseconds took = milliseconds(1000)) {
  return {.memory_bytes = memory,
          .changed_bytes = changed,
          .wire_bytes = changed,
          .took = took,
          .looking = milliseconds(200),
          .sending = milliseconds(changed / kMiB)};  // 1000 MiB a second
}

PrecopyLimits Longest(milliseconds longest) { return {.longest = longest, .within = {}}; }

TEST(PrecopyTest, GoesOnWhileRoundsShrink) {
  Precopy precopy(Longest(milliseconds(60'000)), 1);
  EXPECT_EQ(precopy.WhyEnough(milliseconds(0)), std::nullopt);
  precopy.Add(RoundOf(1024 * kMiB, 1024 * kMiB));
  EXPECT_EQ(precopy.WhyEnough(milliseconds(1000)), std::nullopt);
  precopy.Add(RoundOf(1024 * kMiB, 300 * kMiB));
  EXPECT_EQ(precopy.WhyEnough(milliseconds(2000)), std::nullopt);
  precopy.Add(RoundOf(1024 * kMiB, 9 * kMiB));
  EXPECT_EQ(precopy.WhyEnough(milliseconds(3000)), "converged");
}

TEST(PrecopyTest, EndsWhenMemoryChangesAsFastAsItIsSent) {
  Precopy precopy(Longest(milliseconds(60'000)), 1);
  precopy.Add(RoundOf(1024 * kMiB, 1024 * kMiB));
  precopy.Add(RoundOf(1024 * kMiB, 800 * kMiB));
  EXPECT_EQ(precopy.WhyEnough(milliseconds(2000)), "converged");
}

TEST(PrecopyTest, EndsByItsLimitsBeforeARoundThatWouldPassThem) {
  Precopy precopy(Longest(milliseconds(1500)), 1);
  precopy.Add(RoundOf(1024 * kMiB, 1024 * kMiB));
  EXPECT_EQ(precopy.WhyEnough(milliseconds(400)), std::nullopt);
  EXPECT_EQ(precopy.WhyEnough(milliseconds(1000)), "limit");
  EXPECT_EQ(Precopy(Longest(milliseconds(0)), 1).WhyEnough(milliseconds(1)), "limit");
}

TEST(PrecopyTest, LeavesTimeForTheMoveBeforeTheNodeIsGone) {
  PrecopyLimits limits = Longest(milliseconds(60'000));
  limits.within = milliseconds(10'000);
  Precopy precopy(limits, 1);
  precopy.Add(RoundOf(4096 * kMiB, 4096 * kMiB, milliseconds(1000)));
  // 4.1 s to send, 0.2 s to look, 0.3 s for the rest of the move, 2 s around it, 1 s for the round.
  EXPECT_EQ(precopy.PredictedMove(), milliseconds(4096 + 200 + 300));
  EXPECT_EQ(precopy.WhyEnough(milliseconds(2000)), std::nullopt);
  EXPECT_EQ(precopy.WhyEnough(milliseconds(2500)), "deadline");
}

TEST(PrecopyTest, LanesShareTheWork) {
  Precopy precopy(Longest(milliseconds(60'000)), 2);
  precopy.Add(RoundOf(1000 * kMiB, 1000 * kMiB));
  const wire::Plan plan = precopy.Plan("limit");
  EXPECT_EQ(plan.bytes_per_s(), 2000 * kMiB);
  EXPECT_EQ(plan.predicted_us(), (500 + 100 + 300) * 1000u);
  EXPECT_EQ(plan.memory_bytes(), 1000 * kMiB);
  EXPECT_EQ(plan.rounds(), 1u);
  EXPECT_EQ(plan.why_ended(), "limit");
}

TEST(PaceTest, BytesAreDueOneAfterTheOther) {
  const StopSignal stop;
  Pace pace(1'000'000);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(pace.Take(10'000, stop));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(100));
}

TEST(PaceTest, StopCallsBack) {
  StopSignal stop;
  stop.Stop();
  Pace pace(1);
  const Result<> taken = pace.Take(1'000'000, stop);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kRefused);
}

TEST(ProgressMeterTest, CountsByRankAndNeverPastTheTotal) {
  ProgressMeter meter;
  meter.Begin(wire::Progress::TRANSFER);
  meter.Expect(3, 100);
  meter.Add(3, 60);
  meter.Add(3, 60);
  const wire::Progress progress = meter.Read();
  ASSERT_EQ(progress.ranks_size(), 1);
  EXPECT_EQ(progress.stage(), wire::Progress::TRANSFER);
  EXPECT_EQ(progress.ranks(0).rank(), 3u);
  EXPECT_EQ(progress.ranks(0).done_bytes(), 100u);
  EXPECT_EQ(progress.ranks(0).total_bytes(), 100u);
  meter.Begin(wire::Progress::PRECOPY);
  EXPECT_EQ(meter.Read().ranks_size(), 0);
}

}  // namespace
}  // namespace xmpi::proxy
