// What follows from what a target sees of the files that ranks hold: a row per use, place and
// sight.
#include "proxy/held.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace xmpi::proxy {
namespace {

using image::FileUse;
using image::HeldFile;
using image::Sight;
using testing::HasSubstr;

HeldFile File(FileUse use, bool shared = false, bool locked = false) {
  HeldFile file;
  file.rank = 3;
  file.path = "/d/f";
  file.use = use;
  file.shared = shared;
  file.locked = locked;
  file.file_system = shared ? "nfs" : "ext4";
  return file;
}

struct Row {
  HeldFile file;
  Sight sight;
  bool carry;
  const char* refusal;  // a part of it; nullptr: it can move
  bool at_target = false;
};

TEST(Held, EachSightHasItsConsequence) {
  const Row rows[] = {
      {File(FileUse::kWritten), Sight::kMissing, true, nullptr},
      {File(FileUse::kWritten), Sight::kLeft, true, nullptr},
      {File(FileUse::kWritten), Sight::kSame, true, nullptr, true},
      {File(FileUse::kWritten), Sight::kOther, true, "another file of that name is on node2"},
      {File(FileUse::kWritten), Sight::kMissing, false,
       "on node1's own disk (ext4), and -no-carry-files"},
      {File(FileUse::kWritten), Sight::kSame, false, nullptr, true},
      {File(FileUse::kRead), Sight::kMissing, true, nullptr},
      {File(FileUse::kRead), Sight::kPerhaps, true,
       "another file"},  // no such file here, so none is equal
      {File(FileUse::kMapped), Sight::kMissing, true, nullptr},
      {File(FileUse::kWritten, true), Sight::kSame, false, nullptr, true},
      {File(FileUse::kWritten, true), Sight::kMissing, true,
       "on shared storage (nfs) but not seen on node2"},
      {File(FileUse::kWritten, true, true), Sight::kSame, true, "release it before XMPI_Quiesce"},
      {File(FileUse::kWritten, false, true), Sight::kMissing, true, nullptr},
      {File(FileUse::kFolder), Sight::kSame, true, nullptr, true},
      {File(FileUse::kFolder), Sight::kMissing, true, "make that folder there"},
      {File(FileUse::kDeleted), Sight::kSame, false, nullptr, true},
  };
  for (const Row& row : rows) {
    const auto judged = JudgeSights({row.file}, {{row.sight, {}}}, {"node1", "node2", row.carry});
    const int number = static_cast<int>(&row - rows);
    ASSERT_EQ(judged.has_value(), row.refusal == nullptr) << "row " << number;
    if (judged) {
      EXPECT_EQ(judged->contains("/d/f"), row.at_target) << "row " << number;
    } else {
      EXPECT_EQ(judged.error().code, ErrorCode::kRefused);
      EXPECT_THAT(judged.error().message, HasSubstr(row.refusal));
      EXPECT_THAT(judged.error().message, HasSubstr("rank 3"));
    }
  }
}

TEST(Held, ADeletedFileHasALimit) {
  HeldFile file = File(FileUse::kDeleted);
  file.state.size = 5ull << 30;
  EXPECT_FALSE(JudgeSights({file}, {{Sight::kSame, {}}}, {"node1", "node2", true}));
}

TEST(Held, ImagesThatAreSentOnTellWhatTheyBring) {
  HeldFile file = File(FileUse::kRead), memory = file;
  file.content = "held-0";
  memory.memory = true;
  std::vector<image::RankImage> images(1);
  images[0].manifest.held = {file, memory};
  images[0].manifest.files = {{"core-2.img", 4, {1, 1}}, {"held-0", 4, {1, 2}}};
  const std::vector<HeldFile> held = HeldFiles(images);
  ASSERT_EQ(held.size(), 1u);
  const FileRules rules{.source = "a", .target = "b", .hashes = HashesOf(images)};
  EXPECT_TRUE(JudgeSights(held, {{Sight::kPerhaps, {1, 2}}}, rules)->contains("/d/f"));
  EXPECT_FALSE(JudgeSights(held, {{Sight::kPerhaps, {1, 3}}}, rules));
}

TEST(Held, EveryReasonIsTold) {
  HeldFile other = File(FileUse::kFolder);
  other.path = "/e";
  const auto judged = JudgeSights({File(FileUse::kWritten), other},
                                  {{Sight::kOther, {}}, {Sight::kMissing, {}}}, {});
  ASSERT_FALSE(judged);
  EXPECT_THAT(judged.error().message, HasSubstr("/d/f"));
  EXPECT_THAT(judged.error().message, HasSubstr("/e"));
}

}  // namespace
}  // namespace xmpi::proxy
