// What a target sees and writes of files that ranks hold elsewhere, in a folder that stands for its
// root.
#include "criu/carried_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "criu/held_files.h"
#include "image/hash.h"

namespace xmpi::criu {
namespace {

using image::FileUse;
using image::HeldFile;
using image::Sight;

class CarriedFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    std::filesystem::create_directories(folder_ + "/root/etc");
    std::filesystem::create_directories(folder_ + "/image");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Fd Open(const std::string& name) {
    return Fd(open((folder_ + name).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + name) << text;
  }
  std::string Read(const std::string& name) {
    std::ifstream file(folder_ + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  HeldFile File(const std::string& path, FileUse use, const std::string& content,
                std::uint64_t time = 1'000'000'007) {
    return {.path = path,
            .use = use,
            .file_system = "ext4",
            .kernel = "another",
            .mode = S_IFREG | 0640,
            .user = getuid(),
            .group = getgid(),
            .state = {.inode = 1, .size = content.size(), .modified_ns = time, .changed_ns = time},
            .earlier = {},
            .content = "held-0"};
  }
  // An image that brings `content` for the file.
  image::RankImage Image(const HeldFile& file, const std::string& content) {
    Write("/image/held-0", content);
    image::RankImage image{.directory = Open("/image"), .manifest = {}};
    image.manifest.held = {file};
    image.manifest.files = {
        {"held-0", content.size(), image::HashOf(std::as_bytes(std::span(content)))}};
    return image;
  }
  Sight SightOf(CarriedFiles& files, const HeldFile& file) {
    return files.Look({file}).at(0).sight;
  }

  std::string folder_ = "/tmp/xmpi-carried-XXXXXX";
};

TEST_F(CarriedFilesTest, AMissingFileComesWithModeAndTimeAndGoesUnlessKept) {
  const HeldFile file = File("/new/deep/log", FileUse::kWritten, "text");
  for (const bool keep : {false, true}) {
    {
      CarriedFiles files(Open("/root"));
      EXPECT_EQ(SightOf(files, file), Sight::kMissing);
      ASSERT_TRUE(files.Put(Image(file, "text")));
      struct stat info{};
      ASSERT_EQ(stat((folder_ + "/root/new/deep/log").c_str(), &info), 0);
      EXPECT_EQ(info.st_mode, file.mode);
      EXPECT_EQ(info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec, 1'000'000'007);
      EXPECT_EQ(Read("/root/new/deep/log"), "text");
      if (keep) files.Keep();
    }
    EXPECT_EQ(std::filesystem::exists(folder_ + "/root/new/deep/log"), keep);
  }
}

TEST_F(CarriedFilesTest, AnotherFileIsNeverOverwritten) {
  Write("/root/etc/log", "precious");
  CarriedFiles files(Open("/root"));
  const HeldFile file = File("/etc/log", FileUse::kWritten, "text");
  EXPECT_EQ(SightOf(files, file), Sight::kOther);
  const Result<> put = files.Put(Image(file, "text"));
  ASSERT_FALSE(put);
  EXPECT_THAT(put.error().message, testing::HasSubstr("/etc/log"));
  EXPECT_EQ(Read("/root/etc/log"), "precious");
}

TEST_F(CarriedFilesTest, WhatAnEarlierMoveLeftBehindIsReplaced) {
  Write("/root/etc/log", "te");
  HeldFile file = File("/etc/log", FileUse::kWritten, "text");
  std::uint64_t device = 0;
  file.earlier = {StateOfFile(AT_FDCWD, (folder_ + "/root/etc/log").c_str(), 0, &device)};
  CarriedFiles files(Open("/root"));
  EXPECT_EQ(SightOf(files, file), Sight::kLeft);
  ASSERT_TRUE(files.Put(Image(file, "text")));
  EXPECT_EQ(Read("/root/etc/log"), "text");
  EXPECT_EQ(files.Earlier("/etc/log").size(), 2u);
}

TEST_F(CarriedFilesTest, OneThatIsOnlyReadMayBeEqual) {
  Write("/root/etc/input", "text");
  CarriedFiles files(Open("/root"));
  EXPECT_EQ(SightOf(files, File("/etc/input", FileUse::kRead, "text")), Sight::kPerhaps);
  EXPECT_TRUE(files.Put(Image(File("/etc/input", FileUse::kRead, "text"), "text")));
  EXPECT_FALSE(files.Put(Image(File("/etc/input", FileUse::kRead, "tixt"), "tixt")));
  EXPECT_EQ(SightOf(files, File("/etc/input", FileUse::kRead, "longer")), Sight::kOther);
  EXPECT_EQ(SightOf(files, File("/etc/input", FileUse::kMapped, "tixt")), Sight::kSame);
}

TEST_F(CarriedFilesTest, TheSameFileOfTheSameKernelStays) {
  Write("/root/etc/log", "text");
  HeldFile file = File("/etc/log", FileUse::kWritten, "older");
  file.state = StateOfFile(AT_FDCWD, (folder_ + "/root/etc/log").c_str(), 0, &file.device);
  CarriedFiles files(Open("/root"));
  EXPECT_EQ(SightOf(files, file), Sight::kOther);
  file.kernel = KernelId();
  Write("/root/etc/log", "longer by now");
  EXPECT_EQ(SightOf(files, file), Sight::kSame);
}

TEST_F(CarriedFilesTest, OfTwoRanksTheNewerContentStays) {
  CarriedFiles files(Open("/root"));
  ASSERT_TRUE(files.Put(Image(File("/etc/log", FileUse::kWritten, "older", 5), "older")));
  ASSERT_TRUE(files.Put(Image(File("/etc/log", FileUse::kWritten, "new", 6), "new")));
  ASSERT_TRUE(files.Put(Image(File("/etc/log", FileUse::kWritten, "older", 5), "older")));
  EXPECT_EQ(Read("/root/etc/log"), "new");
}

TEST_F(CarriedFilesTest, WhatIsPutAgainIsAsItWasAndWrittenOnce) {
  CarriedFiles files(Open("/root"));
  const HeldFile file = File("/etc/log", FileUse::kWritten, "text");
  ASSERT_TRUE(files.Put(Image(file, "text")));
  std::uint64_t device = 0;
  const auto state = [&] {
    return StateOfFile(AT_FDCWD, (folder_ + "/root/etc/log").c_str(), 0, &device);
  };
  const image::FileState first = state();
  ASSERT_TRUE(files.Put(Image(file, "text")));
  EXPECT_EQ(state(), first);
  Write("/root/etc/log", "text and more");
  ASSERT_TRUE(files.Put(Image(file, "text")));
  EXPECT_EQ(Read("/root/etc/log"), "text");
  std::filesystem::remove(folder_ + "/root/etc/log");
  ASSERT_TRUE(files.Put(Image(file, "text")));
  EXPECT_EQ(Read("/root/etc/log"), "text");
  EXPECT_EQ(files.Earlier("/etc/log").size(), 1u);
}

TEST_F(CarriedFilesTest, AnImageThatGoesOnTakesWhatLayHere) {
  Write("/root/etc/input", "text");
  Write("/root/etc/known", "text");
  CarriedFiles files(Open("/root"));
  const HeldFile log = File("/etc/log", FileUse::kWritten, "log");
  image::RankImage image = Image(log, "log");
  ASSERT_TRUE(files.Put(image));
  for (const char* path : {"/etc/input", "/etc/known", "/etc/shared"}) {
    HeldFile file = File(path, FileUse::kRead, "text");
    file.content.clear();
    file.shared = path == std::string("/etc/shared");
    image.manifest.held.push_back(file);
  }
  ASSERT_TRUE(files.Take({"/etc/known"}, &image));
  EXPECT_EQ(image.manifest.held[0], log);
  EXPECT_EQ(image.manifest.held[1].content, "held-1");
  EXPECT_EQ(image.manifest.held[2].content, "");
  EXPECT_EQ(image.manifest.held[3].content, "");
  ASSERT_EQ(image.manifest.files.size(), 2u);
  EXPECT_EQ(image.manifest.files[1].name, "held-1");
  EXPECT_EQ(image.manifest.files[1].length, 4u);
  EXPECT_TRUE(image.elsewhere.contains("held-1"));
  image.manifest.held[2].path = "/etc/none";
  EXPECT_FALSE(files.Take({}, &image));
}

TEST_F(CarriedFilesTest, LinksDoNotLeadOutOfTheSlot) {
  std::filesystem::create_symlink("/etc", folder_ + "/root/link");
  CarriedFiles files(Open("/root"));
  ASSERT_TRUE(files.Put(Image(File("/link/xmpi-carried-test", FileUse::kWritten, "text"), "text")));
  EXPECT_EQ(Read("/root/etc/xmpi-carried-test"), "text");
  EXPECT_FALSE(std::filesystem::exists("/etc/xmpi-carried-test"));
}

TEST_F(CarriedFilesTest, AFolderIsThereOrNot) {
  CarriedFiles files(Open("/root"));
  EXPECT_EQ(SightOf(files, File("/etc", FileUse::kFolder, "")), Sight::kSame);
  EXPECT_EQ(SightOf(files, File("/etc/none", FileUse::kFolder, "")), Sight::kMissing);
}

TEST(HeldFiles, AreFoundByWhatIsDoneWithThem) {
  const std::string path = std::filesystem::temp_directory_path() / "xmpi-held-test";
  const Fd reading(open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0600));
  const Fd proc(open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::vector<Process> tree = ReadTree(proc.get(), getpid());
  const auto use = [&](const std::string& of) {
    for (const Held& held : ReadHeldFiles(proc.get(), 0, tree)) {
      if (held.file.path == of) return held.file.use;
    }
    return FileUse{};
  };
  EXPECT_EQ(use(path), FileUse::kRead);
  const Fd writing(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  EXPECT_EQ(use(path), FileUse::kWritten);
  EXPECT_EQ(use(std::filesystem::read_symlink("/proc/self/exe")), FileUse{});
  EXPECT_EQ(use(std::filesystem::current_path()), FileUse::kFolder);
  std::filesystem::remove(path);
  EXPECT_EQ(use(path + " (deleted)"), FileUse::kDeleted);
  EXPECT_EQ(use("/proc"), FileUse{});
}

}  // namespace
}  // namespace xmpi::criu
