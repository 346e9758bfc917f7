// The parts of the CRIU checkpointer that need no CRIU: its log, process trees, pipes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>

#include "criu/criu_log.h"
#include "criu/missing_pages.h"
#include "criu/pagemap.h"
#include "criu/process_tree.h"
#include "criu/ties.h"

namespace xmpi::criu {
namespace {

using std::chrono::seconds;

TEST(CriuLog, QuotesErrorsWithoutStampsAndPlaces) {
  const std::string log =
      "(00.000100) Version: 4.1.1\n"
      "(00.012345) Error (criu/sk-inet.c:191): inet: Connected TCP socket, consider using\n"
      "(00.012400) Warn  (criu/x.c:1): not this one\n"
      "(00.012500)     17: Error (criu/cr-dump.c:2111): Dumping FAILED.\n";
  EXPECT_EQ(ErrorLines(log), "inet: Connected TCP socket, consider using; Dumping FAILED.");
  EXPECT_EQ(ErrorLines(log, 1), "inet: Connected TCP socket, consider using");
  EXPECT_EQ(ErrorLines("nothing here\n"), "");
  EXPECT_EQ(ErrorLines("Error (a line without an end"), "Error (a line without an end");
}

TEST(CriuLog, TailBeginsAtALine) {
  EXPECT_EQ(LogTail("one\ntwo\nthree\n", 100), "one\ntwo\nthree\n");
  EXPECT_EQ(LogTail("one\ntwo\nthree\n", 8), "three\n");
}

TEST(MissingPages, AreCutWhereTheyCome) {
  MissingPages missing;
  missing.Add({0x10000, 16, 7, 0x10000});
  missing.Add({0x30000, 4, 7, 0x30000});
  const auto middle = missing.Cut(0x14000, 0x18000);
  EXPECT_THAT(middle, testing::ElementsAre(MissingRun{0x14000, 4, 7, 0x14000}));
  EXPECT_THAT(missing.All(), testing::ElementsAre(MissingRun{0x10000, 4, 7, 0x10000},
                                                  MissingRun{0x18000, 8, 7, 0x18000},
                                                  MissingRun{0x30000, 4, 7, 0x30000}));
  EXPECT_TRUE(missing.Cut(0x14000, 0x18000).empty());
  EXPECT_EQ(missing.At(0x17000), std::nullopt);
  EXPECT_EQ(missing.At(0x1f000), (MissingRun{0x1f000, 1, 7, 0x1f000}));
  EXPECT_EQ(missing.At(0x20000), std::nullopt);
  EXPECT_EQ(missing.Next(0x20000), (MissingRun{0x30000, 4, 7, 0x30000}));
  EXPECT_EQ(missing.Next(0x34000), (MissingRun{0x10000, 4, 7, 0x10000}));
  EXPECT_EQ(missing.Cut(0, UINT64_MAX).size(), 3u);
  EXPECT_TRUE(missing.empty());
  EXPECT_EQ(missing.Next(0), std::nullopt);
}

TEST(MissingPages, KeepTheirContentWhenTheyMove) {
  MissingPages missing;
  missing.Add({0x10000, 16, 7, 0x10000});
  missing.Move(0x14000, 0x50000, 0x4000);
  missing.Move(0x51000, 0x60000, 0x1000);
  EXPECT_THAT(
      missing.All(),
      testing::ElementsAre(MissingRun{0x10000, 4, 7, 0x10000}, MissingRun{0x18000, 8, 7, 0x18000},
                           MissingRun{0x50000, 1, 7, 0x14000}, MissingRun{0x52000, 2, 7, 0x16000},
                           MissingRun{0x60000, 1, 7, 0x15000}));
}

// As CRIU 4.1.1 writes it.
TEST(Pagemap, IsReadAndWrittenAsCriuDoes) {
  constexpr char kImage[] =
      "\x19\x43\x56\x54\x25\x40\x08\x56"
      "\x02\0\0\0\x08\x01"
      "\x0c\0\0\0\x08\x80\xc0\xb8\xba\xa4\xbb\x15\x10\x01\x20\x04"
      "\x0c\0\0\0\x08\x80\xc0\x95\xbe\xa7\xbb\x15\x10\x03\x20\x06";
  const std::string image(kImage, sizeof kImage - 1);
  const Result<Pagemap> pagemap = DecodePagemap(image, "pagemap-1.img");
  ASSERT_TRUE(pagemap) << pagemap.error().message;
  EXPECT_EQ(pagemap->pages_number, 1u);
  ASSERT_EQ(pagemap->entries.size(), 2u);
  EXPECT_EQ(pagemap->entries[0].pages, 1u);
  EXPECT_EQ(pagemap->entries[0].flags, kPagePresent);
  EXPECT_EQ(pagemap->entries[1].pages, 3u);
  EXPECT_EQ(pagemap->entries[1].flags, kPagePresent | kPageLazy);
  EXPECT_EQ(Encode(*pagemap), image);
  for (std::size_t size : {0u, 8u, 12u, 14u + 5u})
    EXPECT_FALSE(DecodePagemap(image.substr(0, size), "pagemap-1.img")) << size;
}

TEST(Pagemap, EntriesThatGoOnAreOne) {
  Pagemap pagemap;
  pagemap.Append({0x1000, 2, kPageLazy});
  pagemap.Append({0x3000, 1, kPageLazy});
  pagemap.Append({0x4000, 1, kPagePresent});
  pagemap.Append({0x6000, 1, kPagePresent});
  EXPECT_THAT(pagemap.entries, testing::ElementsAre(PagemapEntry{0x1000, 3, kPageLazy},
                                                    PagemapEntry{0x4000, 1, kPagePresent},
                                                    PagemapEntry{0x6000, 1, kPagePresent}));
}

// A child with a child, both of which wait for their end.
class ProcessTreeTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    root_ = fork();
    if (root_ == 0) {
      setsid();
      const pid_t child = fork();
      if (child > 0) [[maybe_unused]]
        ssize_t done = write(ends[1], &child, sizeof(child));
      for (;;) pause();
    }
    ASSERT_EQ(read(ends[0], &child_, sizeof(child_)), static_cast<ssize_t>(sizeof(child_)));
    close(ends[0]);
    close(ends[1]);
  }
  void TearDown() override {
    (void)SignalTree(proc_.get(), root_, SIGKILL, false);
    waitpid(root_, nullptr, 0);
  }
  char StateOfChild() {
    for (const Process& process : ReadTree(proc_.get(), root_)) {
      if (process.pid == child_) return process.state;
    }
    return '-';
  }

  Fd proc_{open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  pid_t root_ = 0, child_ = 0;
};

TEST_F(ProcessTreeTest, ListsDescendantsAndTheirNumbers) {
  const std::vector<Process> tree = ReadTree(proc_.get(), root_);
  ASSERT_EQ(tree.size(), 2u);
  EXPECT_EQ(tree[0].pid, root_);
  EXPECT_EQ(tree[1].pid, child_);
  EXPECT_EQ(tree[1].session, root_);
  EXPECT_THAT(UsedPids(tree), testing::UnorderedElementsAre(root_, child_));
  EXPECT_TRUE(ReadTree(proc_.get(), 1 << 29).empty());
}

TEST_F(ProcessTreeTest, ContinuesOnlyWhatIsStopped) {
  ASSERT_EQ(kill(child_, SIGSTOP), 0);
  EXPECT_EQ(StateOf(proc_.get(), root_), ProcessState::kRunning);
  ASSERT_EQ(kill(root_, SIGSTOP), 0);
  ASSERT_TRUE(WaitSettled(proc_.get(), root_, true, seconds(20)));
  EXPECT_EQ(StateOf(proc_.get(), root_), ProcessState::kStopped);
  EXPECT_EQ(StateOfChild(), 'T');
  ASSERT_TRUE(SignalTree(proc_.get(), root_, SIGCONT, true));
  EXPECT_TRUE(WaitSettled(proc_.get(), root_, false, seconds(20)));
  EXPECT_EQ(StateOf(proc_.get(), root_), ProcessState::kRunning);
  EXPECT_FALSE(WaitSettled(proc_.get(), root_, true, std::chrono::milliseconds(1)));
}

TEST_F(ProcessTreeTest, AZombieIsGone) {
  ASSERT_TRUE(SignalTree(proc_.get(), root_, SIGKILL, false));
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(root_), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(StateOf(proc_.get(), root_), ProcessState::kGone);
}

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    read_end = Fd(ends[0]);
    write_end = Fd(ends[1]);
  }
  std::string Drain() {
    std::string all(4u << 20, '\0');
    const ssize_t size = read(read_end.get(), all.data(), all.size());
    return all.substr(0, size > 0 ? static_cast<std::size_t>(size) : 0);
  }
  Fd read_end, write_end;
};

TEST(Ties, PeekTakesNothing) {
  Pipe pipe;
  EXPECT_EQ(PeekPipe(pipe.read_end.get()).value(), "");
  // Many small writes: each takes a buffer of the pipe, and one lies across two.
  std::string sent;
  for (int i = 0; i < 500; ++i) {
    const std::string part = "part " + std::to_string(i) + ",";
    ASSERT_EQ(write(pipe.write_end.get(), part.data(), part.size()), std::ssize(part));
    sent += part;
  }
  EXPECT_EQ(PeekPipe(pipe.read_end.get()).value(), sent);
  EXPECT_EQ(PeekPipe(pipe.read_end.get()).value(), sent);
  EXPECT_EQ(pipe.Drain(), sent);
}

TEST(Ties, AFullPipeOfTheLargestSizeTravels) {
  Pipe from, to;
  ASSERT_EQ(fcntl(from.write_end.get(), F_SETPIPE_SZ, 1 << 20), 1 << 20);
  std::string sent(1 << 20, 'x');
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 7 + i / 4096);
  ASSERT_EQ(write(from.write_end.get(), sent.data(), sent.size()), std::ssize(sent));
  const std::string unread = PeekPipe(from.read_end.get()).value();
  EXPECT_EQ(unread, sent);
  ASSERT_TRUE(FillPipe(to.read_end.get(), unread));
  EXPECT_EQ(to.Drain(), sent);
}

TEST(Ties, FindsThoseThatAreStillOpen) {
  Pipe pipe, closed;
  struct stat info{};
  ASSERT_EQ(fstat(pipe.read_end.get(), &info), 0);
  const std::uint64_t inode = info.st_ino;
  ASSERT_EQ(fstat(closed.read_end.get(), &info), 0);
  closed.read_end.Close();
  closed.write_end.Close();
  const Fd proc(open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  std::vector<Process> self(1);
  self[0].pid = getpid();
  const std::vector<OpenFd> fds = ReadFds(proc.get(), self);
  const std::vector<Tie> ties = {{image::TieKind::kStdin, inode},
                                 {image::TieKind::kStdout, info.st_ino},
                                 {image::TieKind::kStderr, inode}};
  ASSERT_EQ(write(pipe.write_end.get(), "left", 4), 4);
  std::vector<image::ManifestTie> found = FindTies(fds, ties);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].is_pipe);
  ASSERT_TRUE(CaptureUnread(proc.get(), fds, &found));
  EXPECT_EQ(found[0].unread, "left");
}

}  // namespace
}  // namespace xmpi::criu
