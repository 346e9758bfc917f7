// The facts against this very process, which opens and maps what they should tell.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/io_uring.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/fd.h"
#include "preflight/files.h"
#include "preflight/node_facts.h"
#include "preflight/rank_facts.h"

namespace xmpi::preflight {
namespace {

using testing::HasSubstr;
using wire::Held;

RankToLookAt Us() {
  RankToLookAt rank{.rank = 1};
  rank.pids = {getpid()};
  return rank;
}

// What is held under this descriptor; UNKNOWN: nothing to tell of.
Held HeldAt(int fd) {
  const wire::RankFacts facts = LookAtHoldings(Us());
  for (const Held& held : facts.holds()) {
    if (held.fd() == fd) return held;
  }
  return {};
}

const Held* Find(const wire::RankFacts& facts, Held::Kind kind) {
  const auto found =
      std::ranges::find_if(facts.holds(), [&](const Held& held) { return held.kind() == kind; });
  return found == facts.holds().end() ? nullptr : &*found;
}

TEST(RankFacts, AListeningSocketIsMpisOnlyIfItDoesNotBlock) {
  const Fd blocking(socket(AF_INET, SOCK_STREAM, 0));
  const Fd other(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
  for (const Fd* each : {&blocking, &other}) ASSERT_EQ(listen(each->get(), 1), 0);
  EXPECT_EQ(HeldAt(blocking.get()).kind(), Held::TCP);
  EXPECT_THAT(HeldAt(blocking.get()).name(), HasSubstr("TCP socket listening on 0.0.0.0:"));
  EXPECT_FALSE(HeldAt(blocking.get()).may_be_mpis());
  EXPECT_TRUE(HeldAt(other.get()).may_be_mpis());
}

TEST(RankFacts, ASocketThatIsNowhereHasItsProtocol) {
  const Fd tcp(socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(HeldAt(tcp.get()).kind(), Held::TCP);
  EXPECT_THAT(HeldAt(tcp.get()).name(), HasSubstr("TCP socket, not connected"));
}

TEST(RankFacts, AConnectionHasBothAddresses) {
  const Fd udp(socket(AF_INET, SOCK_DGRAM, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(9);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(udp.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  EXPECT_EQ(HeldAt(udp.get()).kind(), Held::UDP);
  EXPECT_THAT(HeldAt(udp.get()).name(), HasSubstr("-> 127.0.0.1:9"));
}

TEST(RankFacts, APairOfItsOwnAndATieAreNothing) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Fd one(ends[0]);
  Fd two(ends[1]);
  EXPECT_EQ(HeldAt(one.get()).kind(), Held::UNKNOWN);
  // The other end goes elsewhere.
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  two.Close();
  EXPECT_EQ(HeldAt(one.get()).kind(), Held::UNIX_SOCKET);
  RankToLookAt both = Us();  // unless who has it is the rank's too
  both.pids.push_back(child);
  EXPECT_EQ(Find(LookAtHoldings(both), Held::UNIX_SOCKET), nullptr);
  RankToLookAt tied = Us();
  struct stat info{};
  ASSERT_EQ(fstat(one.get(), &info), 0);
  tied.ties.insert(info.st_ino);
  EXPECT_EQ(Find(LookAtHoldings(tied), Held::UNIX_SOCKET), nullptr);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(RankFacts, IoUringIsFoundWhereTheKernelHasIt) {
  io_uring_params params{};
  const Fd ring(static_cast<int>(syscall(SYS_io_uring_setup, 1, &params)));
  if (!ring) GTEST_SKIP() << "no io_uring here";
  EXPECT_EQ(HeldAt(ring.get()).kind(), Held::IO_URING);
}

TEST(RankFacts, SysvMemoryIsMpisOnlyIfItIsPrivateAndDoomed) {
  const int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
  ASSERT_GE(id, 0);
  void* const memory = shmat(id, nullptr, 0);
  const wire::RankFacts kept = LookAtHoldings(Us());
  shmctl(id, IPC_RMID, nullptr);
  const wire::RankFacts doomed = LookAtHoldings(Us());
  shmdt(memory);
  ASSERT_NE(Find(kept, Held::SYSV_SHM), nullptr);
  EXPECT_FALSE(Find(kept, Held::SYSV_SHM)->may_be_mpis());
  EXPECT_THAT(Find(kept, Held::SYSV_SHM)->name(), HasSubstr(std::to_string(id)));
  ASSERT_NE(Find(doomed, Held::SYSV_SHM), nullptr);
  EXPECT_TRUE(Find(doomed, Held::SYSV_SHM)->may_be_mpis());
  EXPECT_EQ(Find(LookAtHoldings(Us()), Held::SYSV_SHM), nullptr);
}

TEST(RankFacts, SharedMemoryIsInTheWayOnlyWhenItIsMpis) {
  for (const char* name : {"/xmpi-facts-test", "/mpich-facts-test"}) {
    const Fd file(shm_open(name, O_RDWR | O_CREAT, 0600));
    ASSERT_TRUE(file);
    ASSERT_EQ(ftruncate(file.get(), 4096), 0);
    void* const memory = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file.get(), 0);
    ASSERT_NE(memory, MAP_FAILED);
    const wire::RankFacts facts = LookAtRank(Us());
    munmap(memory, 4096);
    shm_unlink(name);
    const Held* held = Find(facts, Held::SHARED_MEMORY);
    EXPECT_EQ(held != nullptr, name[1] == 'm') << name;
    EXPECT_TRUE(held == nullptr || held->may_be_mpis());
    for (const wire::OpenFile& open : facts.files())
      EXPECT_THAT(open.file().path(), testing::Not(HasSubstr("/dev/shm")));
  }
}

TEST(RankFacts, MappedCodeIsToldFromData) {
  const std::string path = std::filesystem::temp_directory_path() / "xmpi-facts-data";
  const Fd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(ftruncate(file.get(), 4096), 0);
  void* const memory = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, file.get(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  const wire::RankFacts facts = LookAtRank(Us());
  munmap(memory, 4096);
  std::filesystem::remove(path);
  int data = 0, code = 0;
  for (const wire::FileFacts& mapped : facts.mapped()) {
    if (mapped.path() == path) data += mapped.code() ? 100 : 1;
    if (mapped.path().contains("/libc.so")) code += mapped.code() ? 1 : 100;
  }
  EXPECT_EQ(data, 1);
  EXPECT_EQ(code, 1);
}

TEST(RankFacts, DevicesButNotTheHarmlessOnes) {
  const Fd null(open("/dev/null", O_RDWR)), random(open("/dev/urandom", O_RDONLY));
  EXPECT_EQ(HeldAt(null.get()).kind(), Held::UNKNOWN);
  EXPECT_EQ(HeldAt(random.get()).kind(), Held::UNKNOWN);
  const Fd fuse(open("/dev/fuse", O_RDWR));
  if (!fuse) GTEST_SKIP() << "no device to open here";
  EXPECT_EQ(HeldAt(fuse.get()).kind(), Held::DEVICE);
  EXPECT_EQ(HeldAt(fuse.get()).name(), "/dev/fuse");
}

TEST(RankFacts, ADeletedFileOnlyIfItIsTooLarge) {
  const std::string path = testing::TempDir() + "/deleted";
  const Fd file(open(path.c_str(), O_RDWR | O_CREAT, 0600));
  ASSERT_EQ(ftruncate(file.get(), 5000), 0);
  unlink(path.c_str());
  EXPECT_EQ(HeldAt(file.get()).kind(), Held::DELETED_FILE);
  RankToLookAt generous = Us();
  generous.ghost_limit_bytes = 5000;
  EXPECT_EQ(Find(LookAtHoldings(generous), Held::DELETED_FILE), nullptr);
}

TEST(RankFacts, ProgramFolderMemoryMappedAndOpenFiles) {
  const std::string path = testing::TempDir() + "/open file";
  const Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600));
  const wire::RankFacts facts = LookAtRank(Us());
  unlink(path.c_str());
  EXPECT_EQ(facts.program(), std::filesystem::read_symlink("/proc/self/exe").string());
  EXPECT_EQ(facts.working_directory(), std::filesystem::current_path().string());
  EXPECT_GT(facts.memory_bytes(), 100'000u);
  const auto libc = std::ranges::find_if(facts.mapped(), [](const wire::FileFacts& mapped) {
    return mapped.path().contains("libc.so");
  });
  ASSERT_NE(libc, facts.mapped().end());
  EXPECT_EQ(libc->build_id().size(), 20u);
  EXPECT_EQ(Files().At(libc->path(), true).build_id(), libc->build_id());
  const auto opened = std::ranges::find_if(
      facts.files(), [&](const wire::OpenFile& each) { return each.fd() == file.get(); });
  ASSERT_NE(opened, facts.files().end());
  EXPECT_THAT(opened->file().path(), HasSubstr("open file"));
  EXPECT_EQ(opened->flags() & (O_ACCMODE | O_APPEND), static_cast<unsigned>(O_WRONLY | O_APPEND));
}

TEST(RankFacts, MapsAreParsed) {
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

TEST(Files, WhatIsNoElfFileHasNoBuildId) {
  const std::string path = testing::TempDir() + "/elf";
  for (const std::string& text : {std::string(), std::string("\177ELF"),
                                  std::string("\177ELF\002\001\001") + std::string(200, '\377')}) {
    std::ofstream(path, std::ios::binary) << text;
    const Fd file(open(path.c_str(), O_RDONLY));
    EXPECT_EQ(BuildIdOf(file.get()), "");
  }
  unlink(path.c_str());
  EXPECT_FALSE(Files().At("/nowhere", true).exists());
}

TEST(Files, SharedFileSystems) {
  for (const char* type : {"nfs4", "lustre", "fuse.glusterfs"}) EXPECT_TRUE(IsShared(type)) << type;
  for (const char* type : {"ext4", "tmpfs", "overlay", ""}) EXPECT_FALSE(IsShared(type)) << type;
}

TEST(NodeFacts, AreThere) {
  setenv("XMPI_CPU_WITHOUT", "sse2,avx2", 1);
  const wire::NodeFacts facts = LookAtNode("n", "1");
  unsetenv("XMPI_CPU_WITHOUT");
  EXPECT_FALSE(facts.kernel().empty());
  EXPECT_GT(facts.memory_total_bytes(), facts.memory_room_bytes());
  EXPECT_GT(facts.memory_room_bytes(), 1'000'000u);
  EXPECT_GT(facts.time_us(), 0);
  EXPECT_GE(facts.libraries_size(), 1);
  const auto& flags = facts.cpu().flags();
  EXPECT_NE(std::ranges::find(flags, "fxsr"), flags.end());
  EXPECT_EQ(std::ranges::find(flags, "sse2"), flags.end());
  EXPECT_NE(facts.cpu().xcr0() & 3, 0u);
  EXPECT_GE(facts.cpu().xsave_bytes(), 576u);
}

}  // namespace
}  // namespace xmpi::preflight
