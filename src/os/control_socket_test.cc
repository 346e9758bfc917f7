#include "os/control_socket.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
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
  std::string folder_;
};

TEST_F(ControlSocket, AJobIsListedWhileItsLauncherListens) {
  EXPECT_TRUE(ControlJobs()->empty());
  {
    auto listener = ControlListener::Listen("heat");
    ASSERT_TRUE(listener) << listener.error().message;
    EXPECT_EQ(*ControlJobs(), std::vector<std::string>{"heat"});
    auto socket = ConnectControl("heat");
    ASSERT_TRUE(socket);
    EXPECT_TRUE(PeerIsThisUser(*socket));
    struct stat file{}, parent{};
    ASSERT_EQ(stat(listener->path().c_str(), &file), 0);
    ASSERT_EQ(stat(ControlFolder().c_str(), &parent), 0);
    EXPECT_EQ(file.st_mode & 0777, 0600u);
    EXPECT_EQ(parent.st_mode & 0777, 0700u);
  }
  EXPECT_TRUE(ControlJobs()->empty());
  EXPECT_FALSE(fs::exists(ControlFolder())) << "nothing is left of the last job";
}

TEST_F(ControlSocket, ANameIsTakenOnce) {
  auto first = ControlListener::Listen("heat");
  ASSERT_TRUE(first);
  auto second = ControlListener::Listen("heat");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kRefused);
  EXPECT_TRUE(ConnectControl("heat"));
}

TEST_F(ControlSocket, ASocketOfADeadLauncherIsRemovedAndItsNameFreeAgain) {
  auto listener = ControlListener::Listen("heat");
  ASSERT_TRUE(listener);
  // As kill -9 leaves it: the file stays, nobody listens.
  const std::string path = listener->path();
  const std::string aside = path + ".aside";
  fs::rename(path, aside);
  {
    const ControlListener gone = std::move(*listener);
  }
  fs::rename(aside, path);
  EXPECT_TRUE(ControlJobs()->empty());
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(ControlListener::Listen("heat"));
}

TEST_F(ControlSocket, AFolderThatOthersCanEnterIsRefused) {
  fs::create_directory(ControlFolder());
  chmod(ControlFolder().c_str(), 0755);
  auto listener = ControlListener::Listen("heat");
  ASSERT_FALSE(listener);
  EXPECT_NE(listener.error().message.find("0700"), std::string::npos);
  EXPECT_FALSE(ControlJobs());
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
