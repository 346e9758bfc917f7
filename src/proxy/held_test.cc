// What follows from what a target sees of the files that ranks hold: a row per use, place and
// sight.
#include "proxy/held.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "preflight/compare.h"

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
       "/d/f is open for writing and is not on node2 (rank 3): it is on node1's own disk (ext4), "
       "and -no-carry-files"},
      {File(FileUse::kWritten), Sight::kSame, false, nullptr, true},
      {File(FileUse::kRead), Sight::kMissing, true, nullptr},
      {File(FileUse::kRead), Sight::kPerhaps, true,
       "another file"},  // no such file here, so none is equal
      {File(FileUse::kMapped), Sight::kMissing, true, nullptr},
      {File(FileUse::kWritten, true), Sight::kSame, false, nullptr, true},
      {File(FileUse::kWritten, true), Sight::kMissing, true,
       "is not on node2 (rank 3): it is on shared storage (nfs); mount that on node2"},
      {File(FileUse::kWritten, true, true), Sight::kSame, true, "release it before XMPI_Quiesce",
       true},
      {File(FileUse::kWritten, false, true), Sight::kMissing, true, nullptr},
      {File(FileUse::kFolder), Sight::kSame, true, nullptr, true},
      {File(FileUse::kFolder), Sight::kMissing, true,
       "the folder /d/f is not on node2 (rank 3): a rank works in it or has it open; make it "
       "there"},
      {File(FileUse::kFolder), Sight::kOther, true, "the folder /d/f is not on node2"},
      {File(FileUse::kMapped), Sight::kMissing, false, "/d/f is mapped and is not on node2"},
      {File(FileUse::kRead), Sight::kSame, true, nullptr, true},
      {File(FileUse::kRead), Sight::kOther, true,
       "/d/f is open and another file of that name is on node2"},
      {File(FileUse::kDeleted), Sight::kSame, false, nullptr, true},
  };
  for (const Row& row : rows) {
    const FileVerdict verdict =
        JudgeSights({row.file}, {{row.sight, {}}}, {"node1", "node2", row.carry});
    const auto number = &row - rows;
    const std::string said = preflight::Refusals(verdict.findings);
    EXPECT_EQ(verdict.at_target.contains("/d/f"), row.at_target) << "row " << number;
    if (row.refusal == nullptr) {
      EXPECT_EQ(said, "") << "row " << number;
    } else {
      EXPECT_THAT(said, HasSubstr(row.refusal)) << "row " << number;
      EXPECT_EQ(verdict.findings.findings_size(), 1) << "row " << number;
    }
  }
}

TEST(Held, ADeletedFileHasALimit) {
  HeldFile file = File(FileUse::kDeleted);
  file.state.size = 5ull << 30;
  const FileVerdict verdict = JudgeSights({file}, {{Sight::kSame, {}}}, {"node1", "node2", true});
  EXPECT_THAT(preflight::Refusals(verdict.findings), HasSubstr("the deleted file /d/f"));
}

TEST(Held, ADeletedFileOfSeveralRanksCannotMove) {
  HeldFile file = File(FileUse::kDeleted), same = file, other = file;
  file.path = same.path = other.path = "/d/f (deleted)";
  file.device = same.device = other.device = 5;
  file.state.inode = same.state.inode = 1;
  other.state.inode = 2;
  same.rank = 4;
  other.rank = 5;
  const std::vector<image::Seen> sights(3, {Sight::kSame, {}});
  const FileVerdict verdict = JudgeSights({file, same, other}, sights, {"node1", "node2"});
  EXPECT_THAT(preflight::Refusals(verdict.findings),
              HasSubstr("in several ranks: /d/f (ranks 3, 4): after the move"));
  EXPECT_FALSE(preflight::Refuses(
      JudgeSights({file, other}, {sights[0], sights[1]}, {"node1", "node2"}).findings));
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
  EXPECT_TRUE(JudgeSights(held, {{Sight::kPerhaps, {1, 2}}}, rules).at_target.contains("/d/f"));
  EXPECT_TRUE(preflight::Refuses(JudgeSights(held, {{Sight::kPerhaps, {1, 3}}}, rules).findings));
}

TEST(Held, EveryReasonIsToldAndOnceForAllRanksThatItConcerns) {
  HeldFile folder = File(FileUse::kFolder), again = folder;
  folder.path = again.path = "/e";
  again.rank = 4;
  const FileVerdict verdict = JudgeSights(
      {File(FileUse::kWritten), folder, again},
      {{Sight::kOther, {}}, {Sight::kMissing, {}}, {Sight::kMissing, {}}}, {"node1", "node2"});
  ASSERT_EQ(verdict.findings.findings_size(), 2);
  const std::string said = preflight::Refusals(verdict.findings);
  EXPECT_THAT(said, HasSubstr("(1) /d/f is open for writing and another file"));
  EXPECT_THAT(said, HasSubstr("(2) the folder /e is not on node2 (ranks 3, 4)"));
}

}  // namespace
}  // namespace xmpi::proxy
