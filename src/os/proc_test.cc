// The readers of /proc against texts of it and against this process.
#include "os/proc.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

namespace xmpi::os {
namespace {

TEST(Proc, MapsAreParsed) {
  const auto maps = ParseMaps(
      "7f00-7f10 r-xp 00000000 fd:01 42   /usr/lib/a b.so\n"
      "7f10-7f20 rw-s 00000000 00:05 9    /SYSV0000002a (deleted)\n"
      "7f20-7f30 rw-p 00000000 00:00 0 \n"
      "garbage\n");
  ASSERT_EQ(maps.size(), 3u);
  EXPECT_EQ(maps[0].path, "/usr/lib/a b.so");
  EXPECT_EQ(maps[1].path, "/SYSV0000002a");
  EXPECT_TRUE(maps[1].deleted);
  EXPECT_EQ(maps[1].inode, 9u);
  EXPECT_EQ(maps[2].path, "");
}

TEST(Proc, FieldsAndNumbers) {
  const std::string text = "Name:\tsolver\nVmRSS:\t  12 kB\nEmpty:\n";
  EXPECT_EQ(Field(text, "Name"), "solver");
  EXPECT_EQ(Field(text, "VmR"), "");
  EXPECT_EQ(Field(text, "Empty"), "");
  EXPECT_EQ(KilobytesField(text, "VmRSS"), 12u * 1024);
  const std::vector<int> fds = Numbers("/proc/self/fd");
  EXPECT_TRUE(std::ranges::is_sorted(fds));
  EXPECT_TRUE(std::ranges::contains(fds, STDIN_FILENO));
}

TEST(Proc, WhatCannotBeReadIsEmpty) {
  EXPECT_EQ(ReadText("/proc/0/status"), "");
  EXPECT_EQ(ReadLink("/proc/0/exe"), "");
  EXPECT_TRUE(Numbers("/proc/0/fd").empty());
}

}  // namespace
}  // namespace xmpi::os
