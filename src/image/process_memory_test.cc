// ProcessMemory against a real process. Reading another's memory needs the right to trace it, which
// a parent has.
#include "image/process_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <vector>

#include "image/page_hashes.h"

namespace xmpi::image {
namespace {

constexpr std::size_t kPages = 64;

// Memory of several kinds, made before the fork, so that the child has it at the same place.
class ProcessMemoryTest : public testing::TestWithParam<ScanBy> {
 protected:
  ProcessMemoryTest()
      : proc_(open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
        own_(Map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS)),
        read_only_(Map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS)),
        shared_(Map(PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS)),
        of_file_(MapFile()) {
    for (const std::size_t page : {0, 1, 2, 10, 63}) Write(own_, page);
    Write(read_only_, 3);
    EXPECT_EQ(mprotect(read_only_, kPages * kPageBytes, PROT_READ), 0);
    Write(shared_, 3);
    Write(of_file_, 5);
    Touch(own_, 20);  // read, never written: the kernel's page of zeros
    Touch(of_file_, 6);
    child_ = fork();
    if (child_ == 0) {
      for (;;) pause();
    }
  }
  ~ProcessMemoryTest() override {
    End();
    for (std::byte* mapping : {own_, read_only_, shared_, of_file_})
      munmap(mapping, kPages * kPageBytes);
  }

  static std::byte* Map(int protection, int flags, int fd = -1) {
    void* const mapped = mmap(nullptr, kPages * kPageBytes, protection, flags, fd, 0);
    EXPECT_NE(mapped, MAP_FAILED);
    return static_cast<std::byte*>(mapped);
  }
  static std::byte* MapFile() {
    const Fd file(memfd_create("mapped", MFD_CLOEXEC));
    EXPECT_EQ(ftruncate(file.get(), kPages * kPageBytes), 0);
    return Map(PROT_READ | PROT_WRITE, MAP_PRIVATE, file.get());
  }
  static void Write(std::byte* mapping, std::size_t page) {
    std::memset(mapping + page * kPageBytes, static_cast<int>(page + 1), kPageBytes);
  }
  static void Touch(std::byte* mapping, std::size_t page) {
    const std::byte read = *const_cast<volatile std::byte*>(mapping + page * kPageBytes);
    EXPECT_EQ(read, std::byte{0});
  }
  void End() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    EXPECT_EQ(waitpid(child_, nullptr, 0), child_);
    child_ = -1;
  }
  static std::uint64_t AddressOf(const std::byte* mapping, std::size_t page = 0) {
    return reinterpret_cast<std::uintptr_t>(mapping) + page * kPageBytes;
  }
  // The pages of one mapping that were found.
  static std::vector<std::size_t> Within(const std::vector<PageRun>& runs,
                                         const std::byte* mapping) {
    std::vector<std::size_t> pages;
    for (std::size_t page = 0; page < kPages; ++page) {
      const std::uint64_t address = AddressOf(mapping, page);
      if (std::ranges::any_of(runs, [&](const PageRun& run) {
            return run.address <= address && address < EndOf(run);
          })) {
        pages.push_back(page);
      }
    }
    return pages;
  }

  Fd proc_;
  std::byte* own_;
  std::byte* read_only_;
  std::byte* shared_;
  std::byte* of_file_;
  pid_t child_ = -1;
};

TEST_P(ProcessMemoryTest, FindsThePagesOfItsOwn) {
  const Result<std::vector<PageRun>> runs = Scan(proc_.get(), child_, GetParam());
  ASSERT_TRUE(runs) << runs.error().message;
  EXPECT_TRUE(AreOrdered(*runs));
  std::vector<std::size_t> own = Within(*runs, own_);
  if (GetParam() == ScanBy::kPagemap) std::erase(own, 20u);  // it cannot tell
  EXPECT_EQ(own, (std::vector<std::size_t>{0, 1, 2, 10, 63}));
  EXPECT_TRUE(Within(*runs, read_only_).empty());
  EXPECT_TRUE(Within(*runs, shared_).empty());
  EXPECT_EQ(Within(*runs, of_file_), (std::vector<std::size_t>{5}));
}

INSTANTIATE_TEST_SUITE_P(, ProcessMemoryTest, testing::Values(ScanBy::kBest, ScanBy::kPagemap));

TEST_P(ProcessMemoryTest, ReadsUpToWhatIsNotThere) {
  ProcessMemory memory(proc_.get());
  std::vector<std::byte> pages(3 * kPageBytes);
  ASSERT_EQ(memory.Read(child_, AddressOf(own_), pages).value(), pages.size());
  EXPECT_EQ(std::memcmp(pages.data(), own_, pages.size()), 0);
  EXPECT_EQ(memory.Read(child_, 0, pages).value(), 0u);  // nothing is ever mapped there
  EXPECT_FALSE(memory.Read(1 << 30, AddressOf(own_), pages));
  EXPECT_FALSE(Scan(proc_.get(), 1 << 30));
}

TEST_P(ProcessMemoryTest, ReadsUpToAHole) {
  std::byte* const three = Map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  for (std::size_t page = 0; page < kPages; ++page) Write(three, page);
  munmap(three + 2 * kPageBytes, kPageBytes);
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  ProcessMemory memory(proc_.get());
  std::vector<std::byte> pages(8 * kPageBytes);
  EXPECT_EQ(memory.Read(child, AddressOf(three), pages).value(), 2 * kPageBytes);
  EXPECT_EQ(memory.Read(child, AddressOf(three, 2), pages).value(), 0u);
  EXPECT_EQ(memory.Read(child, AddressOf(three, 3), pages).value(), pages.size());
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  munmap(three, kPages * kPageBytes);
}

TEST_P(ProcessMemoryTest, KnowsThatAProcessHasEnded) {
  ProcessMemory memory(proc_.get());
  std::vector<std::byte> page(kPageBytes);
  const pid_t pid = child_;
  ASSERT_TRUE(memory.Read(pid, AddressOf(own_), page));
  End();
  EXPECT_FALSE(memory.Read(pid, AddressOf(own_), page));
}

}  // namespace
}  // namespace xmpi::image
