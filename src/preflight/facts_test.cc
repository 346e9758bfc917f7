// The facts against this very process, which opens and maps what they should tell.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>
#include <mqueue.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <format>
#include <fstream>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/fd.h"
#include "preflight/files.h"
#include "preflight/node_facts.h"
#include "preflight/pids.h"
#include "preflight/rank_facts.h"

namespace xmpi::preflight {
namespace {

using testing::HasSubstr;
using wire::Held;

// While it runs; of its sockets nothing has been told.
RankToLookAt Us() {
  static const ClosingSockets kNone;
  RankToLookAt rank{.rank = 1, .closing = &kNone};
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

class ToldSockets : public testing::Test {
 protected:
  ToldSockets() {
    for (Fd* each : {&listener_, &other_}) {
      *each = Fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
      XMPI_CHECK(listen(each->get(), 1) == 0);
    }
    Tell(1, std::format("{} {}@{}", getpid(), InodeOf(listener_), AddressOf(listener_)));
  }

  static ino_t InodeOf(const Fd& fd) {
    struct stat info{};
    XMPI_CHECK(fstat(fd.get(), &info) == 0);
    return info.st_ino;
  }
  static std::string AddressOf(const Fd& fd) {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    XMPI_CHECK(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    return std::format("0.0.0.0:{}", ntohs(address.sin_port));
  }
  static Fd Connect(const Fd& listener) {
    Fd fd(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    socklen_t size = sizeof address;
    XMPI_CHECK(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    XMPI_CHECK(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    XMPI_CHECK(fcntl(fd.get(), F_SETFL, O_NONBLOCK) == 0);
    return fd;
  }
  void Tell(RankId rank, const std::string& list) { closing_.Add(rank, list); }
  Held HeldAt(int fd, pid_t pid = getpid()) const {
    RankToLookAt us{.rank = 1, .pids = {getpid()}, .closing = &closing_};
    if (pid != getpid()) us.pids.push_back(pid);
    const wire::RankFacts ours = LookAtHoldings(us);
    for (const Held& held : ours.holds()) {
      if (held.fd() == fd && held.pid() == static_cast<std::uint32_t>(pid)) return held;
    }
    return {};
  }

  Fd listener_, other_;
  ClosingSockets closing_;
};

TEST_F(ToldSockets, OneThatIsListedAndItsConnectionsWillBeClosed) {
  const Fd ours = Connect(listener_);
  const Fd theirs(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK));
  for (const Fd* each : {&std::as_const(listener_), &ours, &theirs})
    EXPECT_TRUE(HeldAt(each->get()).may_be_mpis()) << HeldAt(each->get()).name();
}

TEST_F(ToldSockets, AllOthersAreTheProgramsOwn) {
  const Fd ours = Connect(other_);
  const Fd theirs(accept4(other_.get(), nullptr, nullptr, SOCK_NONBLOCK));
  const Fd udp(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0));
  for (const Fd* each : {&std::as_const(other_), &ours, &theirs, &udp}) {
    EXPECT_NE(HeldAt(each->get()).kind(), Held::UNKNOWN);
    EXPECT_FALSE(HeldAt(each->get()).may_be_mpis()) << HeldAt(each->get()).name();
  }
}

TEST_F(ToldSockets, AConnectionToAnotherRanksIsMpis) {
  Tell(2, std::format("1 77@{}", AddressOf(other_)));
  const Fd ours = Connect(other_);
  const Fd theirs(accept4(other_.get(), nullptr, nullptr, SOCK_NONBLOCK));
  EXPECT_TRUE(HeldAt(ours.get()).may_be_mpis());
  EXPECT_FALSE(HeldAt(theirs.get()).may_be_mpis()) << "this end would be in the other rank";
}

TEST_F(ToldSockets, OneThatIsNowhereYetMayBeMpis) {
  const Fd idle(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
  EXPECT_TRUE(HeldAt(idle.get()).may_be_mpis());
}

TEST_F(ToldSockets, AChildThatInheritsThemIsNamed) {
  const Fd mine = Connect(other_);
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  EXPECT_EQ(HeldAt(listener_.get(), child).kind(), Held::INHERITED);
  EXPECT_FALSE(HeldAt(listener_.get(), child).may_be_mpis());
  EXPECT_THAT(HeldAt(listener_.get(), child).name(), HasSubstr("listening on"));
  EXPECT_EQ(HeldAt(mine.get(), child).kind(), Held::TCP) << "the program's own";
  EXPECT_TRUE(HeldAt(listener_.get()).may_be_mpis()) << "the parent's are";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(ToldSockets, ParkedNothingIsMpis) {
  RankToLookAt parked{.rank = 1, .pids = {getpid()}};
  const wire::RankFacts facts = LookAtHoldings(parked);
  ASSERT_NE(Find(facts, Held::TCP), nullptr);
  for (const Held& held : facts.holds()) EXPECT_FALSE(held.may_be_mpis()) << held.name();
}

TEST_F(ToldSockets, AListThatCannotBeReadTellsNothing) {
  ClosingSockets closing;
  for (const char* list : {"", "x", "4294967296 12", "12x", "12 x@y 9@ @1:2 99999999999999999999"})
    closing.Add(1, list);
  EXPECT_EQ(closing.ProcessOf(1), 12u);  // of the last, whose words are none
  EXPECT_FALSE(closing.Has(1, 1, {}));
  EXPECT_TRUE(closing.Has(1, 9, {}));
  EXPECT_FALSE(closing.Has(2, 9, {}));
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

TEST(PidsInUse, AreThoseOfProcessesThreadsGroupsAndZombies) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Fd read_end(ends[0]), write_end(ends[1]);
  // The leader of a group is reaped, its child keeps the group alive.
  const pid_t leader = fork();
  if (leader == 0) {
    setsid();
    const pid_t member = fork();
    if (member == 0) {
      pause();
      _exit(0);
    }
    _exit(write(write_end.get(), &member, sizeof member) != sizeof member);
  }
  pid_t member = 0;
  ASSERT_EQ(read(read_end.get(), &member, sizeof member), static_cast<ssize_t>(sizeof member));
  ASSERT_EQ(waitpid(leader, nullptr, 0), leader);
  pid_t tid = 0;
  std::binary_semaphore has_tid(0), seen(0);
  std::jthread thread([&] {
    tid = gettid();
    has_tid.release();
    seen.acquire();
  });
  has_tid.acquire();
  const auto number = [](pid_t pid) { return static_cast<std::uint32_t>(pid); };
  const std::array wanted = {number(getpid()), number(tid), number(leader), number(1 << 22)};
  const std::vector<wire::PidInUse> uses = PidsInUse(wanted);
  seen.release();
  kill(member, SIGKILL);
  ASSERT_EQ(uses.size(), 3u);
  EXPECT_EQ(uses[0].pid(), number(getpid()));
  EXPECT_EQ(uses[1].pid(), number(getpid()));
  EXPECT_THAT(Describe(uses[1]), HasSubstr("is a thread, group or session of preflight_facts"));
  EXPECT_EQ(uses[2].pid(), number(member));
}

TEST(RankFacts, IoUringIsFoundWhereTheKernelHasIt) {
  io_uring_params params{};
  Fd ring(static_cast<int>(syscall(SYS_io_uring_setup, 1, &params)));
  if (!ring) GTEST_SKIP() << "no io_uring here";
  EXPECT_EQ(HeldAt(ring.get()).kind(), Held::IO_URING);
  void* const mapped = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, ring.get(), IORING_OFF_SQ_RING);
  ASSERT_NE(mapped, MAP_FAILED);
  ring.Close();
  EXPECT_NE(Find(LookAtHoldings(Us()), Held::IO_URING), nullptr) << "mapped, but not open";
  munmap(mapped, 4096);
  EXPECT_EQ(Find(LookAtHoldings(Us()), Held::IO_URING), nullptr);
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
  }
}

TEST(RankFacts, OfMappedFilesOnlyCodeIsTold) {
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
    data += mapped.path() == path ? 1 : 0;
    code += mapped.path().contains("/libc.so") ? 1 : 0;
  }
  EXPECT_EQ(data, 0);
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

TEST(RankFacts, ANamedPipeAndAMessageQueue) {
  const std::string path = testing::TempDir() + "/fifo";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const Fd pipe(open(path.c_str(), O_RDWR | O_CLOEXEC));
  unlink(path.c_str());
  EXPECT_EQ(HeldAt(pipe.get()).kind(), Held::NAMED_PIPE);
  const Fd queue(mq_open("/xmpi-facts-test", O_RDWR | O_CREAT, 0600, nullptr));
  if (!queue) GTEST_SKIP() << "no message queues here";
  mq_unlink("/xmpi-facts-test");
  EXPECT_EQ(HeldAt(queue.get()).kind(), Held::KERNEL_OBJECT);
  EXPECT_THAT(HeldAt(queue.get()).name(), HasSubstr("message queue"));
}

TEST(RankFacts, WhatCriuSavesOfTheKernelsObjectsIsNothing) {
  const Fd event(eventfd(0, 0)), poll(epoll_create1(0)), notify(inotify_init1(0)),
      timer(timerfd_create(CLOCK_MONOTONIC, 0)), memory(memfd_create("m", 0));
  for (const Fd* each : {&event, &poll, &notify, &timer, &memory}) {
    ASSERT_TRUE(*each);
    EXPECT_EQ(HeldAt(each->get()).kind(), Held::UNKNOWN) << HeldAt(each->get()).name();
  }
}

TEST(RankFacts, WhatItDoesNotKnowOfThemIsNamed) {
  perf_event_attr what{};
  what.type = PERF_TYPE_SOFTWARE;
  what.size = sizeof what;
  what.config = PERF_COUNT_SW_TASK_CLOCK;
  const Fd counter(static_cast<int>(syscall(SYS_perf_event_open, &what, 0, -1, -1, 0)));
  if (!counter) GTEST_SKIP() << "no performance counters here";
  EXPECT_EQ(HeldAt(counter.get()).kind(), Held::KERNEL_OBJECT);
  EXPECT_THAT(HeldAt(counter.get()).name(), HasSubstr("perf_event"));
}

TEST(RankFacts, SecretMemoryIsFoundWithoutADescriptor) {
  Fd secret(static_cast<int>(syscall(SYS_memfd_secret, 0)));
  if (!secret) GTEST_SKIP() << "no secret memory here";
  ASSERT_EQ(ftruncate(secret.get(), 4096), 0);
  void* const memory = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, secret.get(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  secret.Close();
  EXPECT_NE(Find(LookAtHoldings(Us()), Held::KERNEL_OBJECT), nullptr);
  munmap(memory, 4096);
  EXPECT_EQ(Find(LookAtHoldings(Us()), Held::KERNEL_OBJECT), nullptr);
}

TEST(RankFacts, MemoryInHugePages) {
  constexpr std::size_t kBytes = 2u << 20;
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no huge pages here";
  const wire::RankFacts facts = LookAtHoldings(Us());
  munmap(memory, kBytes);
  ASSERT_NE(Find(facts, Held::HUGE_PAGES), nullptr);
  EXPECT_EQ(Find(facts, Held::HUGE_PAGES)->bytes(), kBytes);
}

TEST(RankFacts, AChildInANamespaceOfItsOwn) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const char made = unshare(CLONE_NEWNET) == 0 ? 'y' : 'n';
    (void)!write(ready[1], &made, 1);
    pause();
    _exit(0);
  }
  char made = 'n';
  ASSERT_EQ(read(ready[0], &made, 1), 1);
  RankToLookAt both = Us();
  both.pids.push_back(child);
  const wire::RankFacts facts = LookAtHoldings(both);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  for (const int end : ready) close(end);
  if (made == 'n') GTEST_SKIP() << "no privilege for namespaces";
  ASSERT_NE(Find(facts, Held::NAMESPACE), nullptr);
  EXPECT_THAT(Find(facts, Held::NAMESPACE)->name(), HasSubstr("net namespace"));
}

TEST(RankFacts, MemoryAndCode) {
  const wire::RankFacts facts = LookAtRank(Us());
  EXPECT_GT(facts.memory_bytes(), 100'000u);
  const auto libc = std::ranges::find_if(facts.mapped(), [](const wire::FileFacts& mapped) {
    return mapped.path().contains("libc.so");
  });
  ASSERT_NE(libc, facts.mapped().end());
  EXPECT_EQ(libc->build_id().size(), 20u);
  EXPECT_EQ(Files().At(libc->path()).build_id(), libc->build_id());
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
  for (const char* path : {"/nowhere", "/tmp"}) EXPECT_FALSE(Files().At(path).is_regular());
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
