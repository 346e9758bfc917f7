#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/fault_points.h"
#include "base/limits.h"
#include "base/log.h"

namespace xmpi {
namespace {

TEST(Log, QuotesOnlyWhatNeedsIt) {
  EXPECT_EQ(log::FormatLine("dump.done", {{"slot", 1}, {"bytes", 42u}}),
            "dump.done slot=1 bytes=42");
  EXPECT_EQ(log::FormatLine("link.down", {{"reason", "no \"route\"\n"}, {"node", ""}}),
            "link.down reason=\"no \\\"route\\\"\\n\" node=\"\"");
  EXPECT_EQ(log::FormatLine("x.y", {{"odd", std::string("\x01\x7f")}}), "x.y odd=\"\\x01\\x7f\"");
}

TEST(Log, LevelsComeFromTheEnvironment) {
  setenv("XMPI_LOG", "info", 1);
  EXPECT_TRUE(log::Init("test"));
  EXPECT_TRUE(log::Enabled(log::Level::kInfo));
  EXPECT_FALSE(log::Enabled(log::Level::kDebug));
  setenv("XMPI_LOG", "loud", 1);
  EXPECT_FALSE(log::Init("test"));
  EXPECT_FALSE(log::Enabled(log::Level::kInfo));
  EXPECT_TRUE(log::Enabled(log::Level::kWarn));
  unsetenv("XMPI_LOG");
}

TEST(Log, WritesOneLineToStderr) {
  log::Init("prog");
  testing::internal::CaptureStderr();
  log::Debug("a.b");
  log::Error("c.d", {{"k", "{} %s"}});
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(text.ends_with(" prog error c.d k=\"{} %s\"\n")) << text;
  EXPECT_EQ(text.find("a.b"), std::string::npos);
}

TEST(LinkTimeouts, AreFoundByName) {
  LinkTimeouts timeouts;
  ASSERT_NE(timeouts.Find("link_timeout"), nullptr);
  *timeouts.Find("link_timeout") = std::chrono::milliseconds(7);
  EXPECT_EQ(timeouts.link_timeout.count(), 7);
  EXPECT_EQ(timeouts.Find("nonsense"), nullptr);
}

TEST(FaultPoints, EveryPhaseHasOneBeforeAndOneAfter) {
  std::set<std::string> expected;
  for (const std::string phase :
       {"prepare", "quiesce", "dump", "transfer", "restore", "handover", "reconnect"}) {
    expected.insert(phase + ".before");
    expected.insert(phase + ".after");
  }
  EXPECT_EQ(std::set<std::string>(kFaultPointNames.begin(), kFaultPointNames.end()), expected);
  EXPECT_EQ(kFaultPointNames.size(), expected.size());
}

TEST(FaultPoints, NamesAndEnumAgree) {
  static_assert(FaultPointNamed("prepare.before") == FaultPoint::kPrepareBefore);
  static_assert(FaultPointNamed("dump.after") == FaultPoint::kDumpAfter);
  static_assert(FaultPointNamed("reconnect.after") == FaultPoint::kReconnectAfter);
}

TEST(FaultPoints, UnarmedIsNothing) {
  ASSERT_TRUE(ArmFaults(""));
  EXPECT_TRUE(FAULT_POINT("dump.before"));
}

TEST(FaultPoints, ErrorNamesThePoint) {
  ASSERT_TRUE(ArmFaults("dump.before:error,restore.after:cut"));
  const auto result = FAULT_POINT("dump.before");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "fault point dump.before");
  EXPECT_TRUE(FAULT_POINT("dump.after"));
  int cuts = 0;
  SetFaultCut([&] { ++cuts; });
  EXPECT_TRUE(FAULT_POINT("restore.after"));
  EXPECT_EQ(cuts, 1);
  SetFaultCut(nullptr);
  ASSERT_TRUE(ArmFaults(""));
}

TEST(FaultPoints, AnActorIsArmedByItsName) {
  ASSERT_TRUE(ArmFaults("node2@dump.before:error,launcher@dump.after:error", "node3"));
  EXPECT_TRUE(FAULT_POINT("dump.before"));
  ASSERT_TRUE(ArmFaults("node2@dump.before:error,dump.after:error", "node2"));
  EXPECT_FALSE(FAULT_POINT("dump.before"));
  EXPECT_FALSE(FAULT_POINT("dump.after"));
  ASSERT_TRUE(ArmFaults("node2@dump.before:error,dump.after:error", "launcher"));
  EXPECT_TRUE(FAULT_POINT("dump.before"));
  EXPECT_TRUE(FAULT_POINT("dump.after"));
  EXPECT_FALSE(ArmFaults("node2@dump.middle:error", "node3"));
  ASSERT_TRUE(ArmFaults(""));
}

TEST(FaultPoints, HoldLastsUntilTheFileIsThere) {
  ASSERT_TRUE(ArmFaults("dump.before:hold=/dev/null"));
  EXPECT_TRUE(FAULT_POINT("dump.before"));
  EXPECT_EQ(ArmedAt(FaultPoint::kDumpBefore), FaultAction::kHold);
  ASSERT_TRUE(ArmFaults(""));
}

TEST(FaultPoints, CrashDiesLikeKill) {
  ASSERT_TRUE(ArmFaults("dump.before:crash"));
  EXPECT_EXIT((void)FAULT_POINT("dump.before"), testing::KilledBySignal(SIGKILL), "");
  ASSERT_TRUE(ArmFaults(""));
}

TEST(FaultPoints, NonsenseIsRefusedAndChangesNothing) {
  ASSERT_TRUE(ArmFaults("dump.before:error"));
  EXPECT_EQ(ArmFaults("dump.middle:error").error().message,
            "XMPI_FAULT: no fault point 'dump.middle'");
  EXPECT_FALSE(ArmFaults("dump.before:explode"));
  EXPECT_FALSE(ArmFaults("dump.before"));
  EXPECT_EQ(ArmedAt(FaultPoint::kDumpBefore), FaultAction::kError);
  ASSERT_TRUE(ArmFaults(""));
}

}  // namespace
}  // namespace xmpi
