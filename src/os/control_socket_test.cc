#include "os/control_socket.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <format>
#include <fstream>

namespace xmpi::os {
namespace {

namespace fs = std::filesystem;

class ControlSocket : public testing::Test {
 protected:
  ControlSocket() {
    char name[] = "/tmp/control_socket_test.XXXXXX";
    folder_ = mkdtemp(name);
    setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
  }
  ~ControlSocket() override { fs::remove_all(folder_); }
  // Not the only job: those of others in /tmp are found, too.
  static bool Listed(const std::string& job) {
    const auto jobs = ControlJobs();
    EXPECT_TRUE(jobs);
    return jobs && std::ranges::count(*jobs, job) == 1;
  }
  const std::string job_ = std::format("control-socket-test-{}", getpid());
  std::string folder_;
};

TEST_F(ControlSocket, AJobIsListedWhileItsLauncherListens) {
  EXPECT_FALSE(Listed(job_));
  {
    auto listener = ControlListener::Listen(job_);
    ASSERT_TRUE(listener) << listener.error().message;
    EXPECT_TRUE(Listed(job_));
    auto socket = ConnectControl(job_);
    ASSERT_TRUE(socket);
    EXPECT_TRUE(PeerIsThisUser(*socket));
    struct stat file{}, parent{};
    ASSERT_EQ(stat(listener->path().c_str(), &file), 0);
    ASSERT_EQ(stat(ControlFolder().c_str(), &parent), 0);
    EXPECT_EQ(file.st_mode & 0777, 0600u);
    EXPECT_EQ(parent.st_mode & 0777, 0700u);
  }
  EXPECT_FALSE(Listed(job_));
  EXPECT_FALSE(fs::exists(ControlFolder())) << "nothing is left of the last job";
}

TEST_F(ControlSocket, ANameIsTakenOnce) {
  auto first = ControlListener::Listen(job_);
  ASSERT_TRUE(first);
  auto second = ControlListener::Listen(job_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kRefused);
  EXPECT_TRUE(ConnectControl(job_));
}

TEST_F(ControlSocket, ASocketOfADeadLauncherIsRemovedAndItsNameFreeAgain) {
  auto listener = ControlListener::Listen(job_);
  ASSERT_TRUE(listener);
  // As kill -9 leaves it: the file stays, nobody listens.
  const std::string path = listener->path();
  const std::string aside = path + ".aside";
  fs::rename(path, aside);
  {
    const ControlListener gone = std::move(*listener);
  }
  fs::rename(aside, path);
  EXPECT_FALSE(Listed(job_));
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(ControlListener::Listen(job_));
}

TEST_F(ControlSocket, AFolderThatOthersCanEnterIsRefused) {
  fs::create_directory(ControlFolder());
  chmod(ControlFolder().c_str(), 0755);
  auto listener = ControlListener::Listen(job_);
  ASSERT_FALSE(listener);
  EXPECT_NE(listener.error().message.find("0700"), std::string::npos);
  EXPECT_FALSE(ControlJobs());
}

TEST_F(ControlSocket, AJobOfALoginIsFoundByAServiceAndTheOtherWayRound) {
  unsetenv("XDG_RUNTIME_DIR");
  auto listener = ControlListener::Listen(job_);
  ASSERT_TRUE(listener) << listener.error().message;
  EXPECT_EQ(listener->path(), std::format("/tmp/xmpi-{}/{}.sock", geteuid(), job_));
  setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
  EXPECT_TRUE(Listed(job_));
  EXPECT_TRUE(ConnectControl(job_));
}

TEST_F(ControlSocket, AFolderThatCannotBeMadeIsNamedWithTheRemedy) {
  setenv("XDG_RUNTIME_DIR", "/no/such/folder", 1);
  const auto listener = ControlListener::Listen(job_);
  ASSERT_FALSE(listener);
  EXPECT_NE(listener.error().message.find("XDG_RUNTIME_DIR"), std::string::npos);
}

TEST_F(ControlSocket, AnUnknownJobIsNamedWithTheRemedy) {
  for (const char* job : {"nobody", "", "../x", ".hidden"}) {
    const auto socket = ConnectControl(job);
    ASSERT_FALSE(socket);
    EXPECT_NE(socket.error().message.find("xmpictl list"), std::string::npos);
  }
}

}  // namespace
}  // namespace xmpi::os
