// What becomes of the memory of ranks that real CRIU moves: it stays out of the image, comes page
// by page while the rank runs, and is never zero in between.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <format>
#include <string>

#include "criu/move_fixture.h"
#include "image/source.h"

namespace xmpi::criu {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kPagesOfMebibyte = 256;

class MemoryMoveTest : public MoveTest {
 protected:
  // A copy that runs and has none of its memory yet. The original is stopped.
  struct Copy {
    std::unique_ptr<Place> source, target;
    Rank original;
    Wires wires{};
    std::vector<image::TaskMemory> memory;
    std::shared_ptr<HeldPages> held;
    std::uint64_t total = 0;
  };
  Copy Restored(int mebibytes, CriuCheckpointer::Options options = {}) {
    Copy copy;
    copy.source = MakePlace();
    copy.target = MakePlace(options);
    copy.wires = Wires::Make();
    copy.original = Start(*copy.source, mebibytes);
    EXPECT_EQ(copy.original.wires.Ask("scan"), "right");
    DumpDone dump = Dump(*copy.source, copy.original);
    EXPECT_TRUE(dump.image) << dump.image.error().message << dump.log;
    image::RankImage image = Transfer(std::move(*dump.image));
    copy.memory = image.manifest.memory;
    copy.held = HeldOf(image);
    copy.total = copy.held->size();
    RestoreDone restore = Restore(*copy.target, std::move(image), copy.wires);
    EXPECT_TRUE(restore.pid) << restore.pid.error().message << restore.log;
    copy.wires.CloseRankEnds();
    return copy;
  }
};

std::uint64_t FileBytes(const image::RankImage& image) {
  std::uint64_t bytes = 0;
  for (const image::ManifestFile& file : image.manifest.files) {
    struct stat info{};
    if (fstatat(image.directory.get(), file.name.c_str(), &info, 0) == 0)
      bytes += static_cast<std::uint64_t>(info.st_size);
  }
  return bytes;
}

// The shared mapping of 4 MiB is in it, and what is not anonymous.
TEST_F(MemoryMoveTest, ADumpLeavesTheMemoryWhereItIs) {
  auto source = MakePlace();
  Rank rank = Start(*source, 64);
  EXPECT_EQ(rank.wires.Ask("scan"), "right");
  DumpDone dump = Dump(*source, rank);
  ASSERT_TRUE(dump.image) << dump.image.error().message;
  EXPECT_LT(FileBytes(*dump.image), 6u << 20);
  // The rank and its helper, each with runs in order.
  const auto& memory = dump.image->manifest.memory;
  ASSERT_EQ(memory.size(), 2u);
  for (const image::TaskMemory& task : memory) {
    std::uint64_t pages = 0, end = 0;
    for (const image::PageRun& run : task.runs) {
      EXPECT_GE(run.address, end);
      end = run.address + run.pages * image::kPageBytes;
      pages += run.pages;
    }
    EXPECT_GE(pages, 64 * kPagesOfMebibyte);
  }
}

TEST_F(MemoryMoveTest, AnImageThatHasNoRoomIsRefused) {
  auto source = MakePlace();
  Rank rank = Start(*source);
  DumpDone result{.image = Fail("no answer"), .log = {}};
  bool done = false;
  source->checkpointer->Dump(
      {.rank = 4, .pid = rank.pid, .ties = rank.wires.Ties(), .image_limit_bytes = 64u << 10},
      [&](DumpDone dump) {
        result = std::move(dump);
        done = true;
      });
  Until([&] { return done; });
  ASSERT_FALSE(result.image);
  EXPECT_THAT(result.image.error().message, HasSubstr("No space left on device"));
  ASSERT_TRUE(source->checkpointer->Continue(rank.pid));
  ExpectSound(rank.wires.Ask("state"));
}

TEST_F(MemoryMoveTest, ARankRunsBeforeItHasItsMemory) {
  Copy copy = Restored(32);
  EXPECT_LT(copy.target->checkpointer->Filled().pages, copy.total / 4);
  ExpectSound(copy.wires.Ask("state"));
  EXPECT_EQ(copy.held->size(), copy.total);  // another restore might need it
  ASSERT_TRUE(FillMemory(*copy.target));
  EXPECT_EQ(copy.held->size(), 0u);
  EXPECT_EQ(copy.held.use_count(), 1);
  const FillProgress filled = copy.target->checkpointer->Filled();
  EXPECT_EQ(filled.pages, filled.total_pages);
  EXPECT_EQ(filled.total_pages, copy.total);
  ExpectSound(copy.wires.Ask("state"));
}

TEST_F(MemoryMoveTest, PagesThatNobodyTouchesComeToo) {
  Copy copy = Restored(32);
  ASSERT_TRUE(FillMemory(*copy.target));
  EXPECT_EQ(copy.held->size(), 0u);
  ExpectSound(copy.wires.Ask("state"));
}

// What a process does to its address space while pages are missing, before the filling and in it.
TEST_F(MemoryMoveTest, AddressSpacesMayChangeMeanwhile) {
  for (const char* change : {"fork", "remap", "dontneed", "unmap"}) {
    for (const bool filling : {false, true}) {
      SCOPED_TRACE(std::format("{}{}", change, filling ? " while it is filled" : ""));
      Copy copy = Restored(filling ? 64 : 16);
      Result<> filled = Fail("no answer");
      bool done = false;
      const auto fill = [&] {
        copy.target->checkpointer->FillMemory([&](Result<> result) {
          filled = std::move(result);
          done = true;
        });
      };
      if (filling) fill();
      EXPECT_EQ(copy.wires.Ask(change), "right");
      if (!filling) fill();
      Until([&] { return done; });
      EXPECT_TRUE(filled) << filled.error().message;
      EXPECT_EQ(copy.held->size(), 0u);
      ExpectSound(copy.wires.Ask("state"));
      EXPECT_EQ(copy.wires.Ask(change), "right");
    }
  }
}

TEST_F(MemoryMoveTest, ARankMayEndWhileItIsFilled) {
  for (const bool before : {true, false}) {
    Copy copy = Restored(64);
    if (before) {
      EXPECT_GT(send(copy.wires.control.get(), "exit 9", 6, MSG_NOSIGNAL), 0);
      Until([&] { return copy.target->exits.contains(copy.original.pid); });
    }
    bool done = false;
    copy.target->checkpointer->FillMemory([&](Result<> result) {
      EXPECT_TRUE(result) << result.error().message;
      done = true;
    });
    if (!before) {
      EXPECT_GT(send(copy.wires.control.get(), "exit 9", 6, MSG_NOSIGNAL), 0);
    }
    Until([&] { return done && copy.target->exits.contains(copy.original.pid); });
    EXPECT_EQ(WEXITSTATUS(copy.target->exits[copy.original.pid]), 9);
    EXPECT_EQ(copy.held->size(), 0u);
  }
}

TEST_F(MemoryMoveTest, MemoryComesFirstWhereItMust) {
  Copy copy = Restored(32, {.lazy = false});
  EXPECT_EQ(copy.held->size(), copy.total);
  ExpectSound(copy.wires.Ask("state"));
  ASSERT_TRUE(FillMemory(*copy.target));
  const Result<Preflight> preflight = Check(*copy.target);
  ASSERT_TRUE(preflight);
  EXPECT_FALSE(preflight->lazy_pages());
}

// An eager restore leaves the image as it was.
TEST_F(MemoryMoveTest, AnImageServesEagerAndLazyRestores) {
  auto source = MakePlace();
  Rank rank = Start(*source);
  DumpDone dump = Dump(*source, rank);
  ASSERT_TRUE(dump.image);
  image::RankImage image = Transfer(std::move(*dump.image));
  const std::uint64_t bytes = FileBytes(image);
  for (const bool lazy : {false, true, false}) {
    auto target = MakePlace({.lazy = lazy});
    Wires wires = Wires::Make();
    RestoreDone restore = Restore(*target, std::move(image), wires);
    wires.CloseRankEnds();
    ASSERT_TRUE(restore.pid) << restore.pid.error().message;
    ExpectSound(wires.Ask("state"));
    image = std::move(restore.image);
    EXPECT_EQ(FileBytes(image), bytes);
    EXPECT_EQ(image::ListImageFiles(image.directory)->size(), image.manifest.files.size());
  }
}

TEST_F(MemoryMoveTest, AnUnfilledRankIsNotDumped) {
  Copy copy = Restored(8);
  Rank rank{.wires = std::move(copy.wires), .pid = copy.original.pid, .host_pid = 0};
  DumpDone dump = Dump(*copy.target, rank);
  ASSERT_FALSE(dump.image);
  EXPECT_THAT(dump.image.error().message, HasSubstr("has not yet got all its memory"));
  EXPECT_EQ(dump.original, ProcessState::kRunning);
  ASSERT_TRUE(FillMemory(*copy.target));
  EXPECT_TRUE(Dump(*copy.target, rank).image);
}

TEST_F(MemoryMoveTest, AnImageWithoutItsMemoryIsRefused) {
  auto source = MakePlace(), target = MakePlace();
  Rank rank = Start(*source);
  DumpDone dump = Dump(*source, rank);
  ASSERT_TRUE(dump.image);
  Wires wires = Wires::Make();
  RestoreDone result{.pid = 0, .image = {}, .log = {}};
  bool done = false;
  target->checkpointer->Restore(
      {.image = std::move(*dump.image), .ties = wires.NewTies(), .reserved_pids = {}},
      [&](RestoreDone restore) {
        result = std::move(restore);
        done = true;
      });
  Until([&] { return done; });
  ASSERT_FALSE(result.pid);
  EXPECT_THAT(result.pid.error().message, HasSubstr("its memory was not given along"));
}

TEST_F(MemoryMoveTest, APageThatIsLostIsNamedAndNeverZero) {
  Copy copy = Restored(16);
  // Whoever touches one of these waits.
  std::uint64_t last = 0;
  for (const image::TaskMemory& task : copy.memory) {
    for (const image::PageRun& run : task.runs) {
      if (task.pid == copy.original.pid && run.pages >= 8 * kPagesOfMebibyte)
        last = run.address + (run.pages - 1) * image::kPageBytes;
    }
  }
  copy.held->Release(copy.original.pid, {last, 1});
  const Result<> filled = FillMemory(*copy.target);
  ASSERT_FALSE(filled);
  EXPECT_THAT(filled.error().message,
              HasSubstr(std::format("rank 4 its memory, for which it waits: page {:#x}", last)));
  EXPECT_GT(send(copy.wires.control.get(), "scan", 4, MSG_NOSIGNAL), 0);
  ASSERT_TRUE(copy.target->checkpointer->Kill(copy.original.pid));
  Until([&] { return copy.target->exits.contains(copy.original.pid); });
  copy.target.reset();
  EXPECT_EQ(copy.wires.ReadOutput(6), "(no more)");
}

// Has pages up to a point, then never answers again; says so.
class StallingPages : public HeldPages {
 public:
  int finds_left = 0;
  int stalled = -1;
  Found Find(pid_t pid, std::uint64_t address, std::uint64_t most) override {
    if (--finds_left < 0) {
      (void)!write(stalled, "s", 1);
      for (;;) pause();
    }
    return HeldPages::Find(pid, address, most);
  }
};

// A proxy that dies with its ranks half filled takes them along: none of them reads what is not
// there. The proxy is a process of its own here.
TEST_F(MemoryMoveTest, WhenTheFillerIsKilledNobodyReadsZeros) {
  auto source = MakePlace();
  Rank rank = Start(*source, 16);
  EXPECT_EQ(rank.wires.Ask("scan"), "right");
  DumpDone dump = Dump(*source, rank);
  ASSERT_TRUE(dump.image);
  image::RankImage image = Transfer(std::move(*dump.image));
  auto pages = std::make_shared<StallingPages>();
  for (const image::TaskMemory& task : image.manifest.memory) pages->Take(task, *HeldOf(image));
  image.pages = pages;
  for (int attempt = 0; attempt < 20; ++attempt) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    Fd stalls(ends[0]), stalled(ends[1]);
    pages->finds_left = 20 + attempt;
    pages->stalled = stalled.get();
    Wires wires = Wires::Make();
    const pid_t proxy = fork();
    if (proxy == 0) {
      places_.clear();
      auto target = MakePlace();
      RestoreDone restore = Restore(*target, std::move(image), wires);
      wires.CloseRankEnds();
      if (!restore.pid) _exit(1);
      wires.Ask("scan");
      _exit(2);
    }
    wires.CloseRankEnds();
    stalled.Close();
    char byte;
    EXPECT_EQ(read(stalls.get(), &byte, 1), 1);
    kill(proxy, SIGKILL);
    int status = 0;
    waitpid(proxy, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    ASSERT_EQ(wires.ReadOutput(6), "(no more)");
  }
}

}  // namespace
}  // namespace xmpi::criu
