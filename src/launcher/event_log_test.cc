#include "launcher/event_log.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <format>
#include <fstream>
#include <nlohmann/json.hpp>

namespace xmpi::launcher {
namespace {

namespace fs = std::filesystem;

class EventLogTest : public testing::Test {
 protected:
  EventLogTest() {
    char name[] = "/tmp/event_log_test.XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~EventLogTest() override { fs::remove_all(folder_); }
  fs::path folder_;
};

const core::Record kRecord{
    "dump.begin", {{"migration", std::int64_t{3}}, {"reason", "it is \"so\"\n"}, {"to", "n2"}}};

TEST_F(EventLogTest, ARecordAsTextAndAsJson) {
  EXPECT_EQ(RecordText(kRecord), R"(dump.begin migration=3 reason="it is \"so\"\n" to=n2)");
  EXPECT_EQ(RecordJson(kRecord),
            R"({"event":"dump.begin","migration":3,"reason":"it is \"so\"\n","to":"n2"})");
}

TEST_F(EventLogTest, EachRecordIsALineWithItsTimeAtOnce) {
  using namespace std::chrono;
  const auto when = system_clock::time_point(sys_days(2026y / 1 / 2) + 3h + 4min + 5s);
  auto log = EventLog::OpenIn((folder_ / "deep" / "er").string(), "heat", when);
  ASSERT_TRUE(log) << log.error().message;
  EXPECT_EQ(fs::path(log->path()).filename(), "heat-20260102T030405Z.jsonl");
  ASSERT_TRUE(log->Write(kRecord, when, 1234));
  std::ifstream file(log->path());
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["time"], "2026-01-02T03:04:05.000000Z");
  EXPECT_EQ(json["us"], 1234);
  EXPECT_EQ(json["event"], "dump.begin");
  EXPECT_EQ(json["migration"], 3);
}

TEST_F(EventLogTest, OldLogsArePrunedAndOtherFilesAreLeft) {
  for (int i = 0; i < 120; ++i) {
    const fs::path path = folder_ / std::format("old-20260101T{:06}Z.jsonl", i);
    std::ofstream(path) << "{}\n";
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(200 - i));
  }
  std::ofstream(folder_ / "notes.txt") << "mine";
  auto log = EventLog::OpenIn(folder_.string(), "new", std::chrono::system_clock::now());
  ASSERT_TRUE(log);
  std::size_t logs = 0;
  for (const auto& entry : fs::directory_iterator(folder_))
    logs += entry.path().extension() == ".jsonl";
  EXPECT_EQ(logs, EventLog::kLogsKept);
  EXPECT_TRUE(fs::exists(folder_ / "notes.txt"));
  EXPECT_TRUE(fs::exists(folder_ / "old-20260101T000119Z.jsonl"));
  EXPECT_FALSE(fs::exists(folder_ / "old-20260101T000000Z.jsonl"));
}

TEST_F(EventLogTest, AFullDiskIsToldOnceAndThenLeft) {
  auto log = EventLog::OpenFile("/dev/full");
  ASSERT_TRUE(log);
  const auto now = std::chrono::system_clock::now();
  const auto first = log->Write(kRecord, now, 0);
  ASSERT_FALSE(first);
  EXPECT_NE(first.error().message.find("/dev/full"), std::string::npos);
  EXPECT_TRUE(log->Write(kRecord, now, 0));
}

TEST_F(EventLogTest, APathThatCannotBeOpenedIsNamed) {
  const auto log = EventLog::OpenFile("/nowhere/at/all");
  ASSERT_FALSE(log);
  EXPECT_NE(log.error().message.find("/nowhere/at/all"), std::string::npos);
}

}  // namespace
}  // namespace xmpi::launcher
