// The slot with its real init: what is spawned, what is told, what is left. The parts that need
// privilege are skipped by name where there is none.
#include "os/slot.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <format>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <thread>

#include "os/namespaces.h"
#include "os/pidfd.h"

namespace xmpi::os {
namespace {

using std::chrono::seconds;
using testing::Contains;
using testing::HasSubstr;

std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t size; (size = read(fd, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<std::size_t>(size));
  }
  return text;
}

std::string Link(const std::string& path) {
  std::error_code error;
  return std::filesystem::read_symlink(path, error).string();
}

bool Exists(pid_t host_pid) { return kill(host_pid, 0) == 0; }

class SlotTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Slot>> slot = Slot::Start({.namespaces = GetParam()});
    ASSERT_TRUE(slot) << slot.error().message;
    slot_ = std::move(*slot);
    slot_->set_on_exit([this](SlotExit exit) { exits_[exit.pid] = exit.status; });
    slot_->set_on_lost([this](Error) { lost_ = true; });
    if (GetParam() && !slot_->has_namespaces()) GTEST_SKIP() << "no privilege for namespaces";
  }

  Result<Spawned> Spawn(const SpawnRequest& request) {
    return Wait([&](Slot::SpawnDone done) { slot_->Spawn(request, std::move(done)); });
  }
  Result<Spawned> Adopt(pid_t pid) {
    return Wait([&](Slot::SpawnDone done) { slot_->Adopt(pid, std::move(done)); });
  }
  template <class Ask>
  Result<Spawned> Wait(Ask ask) {
    Result<Spawned> result = Fail("no answer");
    bool answered = false;
    ask([&](Result<Spawned> done) {
      result = std::move(done);
      answered = true;
    });
    EXPECT_TRUE(answered || slot_->DispatchUntil([&] { return answered; }, seconds(20)));
    return result;
  }

  int WaitExit(pid_t pid) {
    EXPECT_TRUE(slot_->DispatchUntil([&] { return exits_.contains(pid); }, seconds(20)));
    return exits_.contains(pid) ? exits_[pid] : -1;
  }

  // Runs `script` with its standard output in a pipe, and gives what it wrote.
  std::string Run(const std::string& script, SpawnRequest request = {}) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    Fd out(ends[0]), in(ends[1]);
    request.argv = {"sh", "-c", script};
    request.env.push_back("PATH=/usr/bin:/bin");
    request.fds.push_back({.target = 1, .fd = in.get()});
    Result<Spawned> spawned = Spawn(request);
    EXPECT_TRUE(spawned) << spawned.error().message;
    in.Close();
    return ReadAll(out.get());
  }

  std::unique_ptr<Slot> slot_;
  std::map<pid_t, int> exits_;
  bool lost_ = false;
};

INSTANTIATE_TEST_SUITE_P(All, SlotTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Namespaces" : "Plain"; });

TEST_P(SlotTest, WhatTheInitKeepsIsAFileForTheRanksAndNoDescriptorOfTheirs) {
  const Fd file(memfd_create("kept", MFD_CLOEXEC));
  auto slot = Slot::Start({.namespaces = GetParam(), .kept = file.get()});
  ASSERT_TRUE(slot) << slot.error().message;
  slot_ = std::move(*slot);
  ASSERT_EQ(write(file.get(), "written later", 13), 13);
  EXPECT_EQ(Run("cat " + slot_->kept_path()), "written later");
  EXPECT_EQ(Run("ls /proc/self/fd | wc -l"), "4\n");  // 0, 1, 2 and the folder itself
}

TEST_P(SlotTest, ReportsExitCodesAndSignals) {
  auto ok = Spawn({.argv = {"/bin/sh", "-c", "exit 7"}});
  ASSERT_TRUE(ok) << ok.error().message;
  EXPECT_EQ(WEXITSTATUS(WaitExit(ok->pid)), 7);
  auto killed = Spawn({.argv = {"/bin/sh", "-c", "kill -TERM $$"}});
  ASSERT_TRUE(killed);
  EXPECT_EQ(WTERMSIG(WaitExit(killed->pid)), SIGTERM);
}

TEST_P(SlotTest, NamesWhatCannotBeRun) {
  auto missing = Spawn({.argv = {"/no/such/program"}});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message, "cannot run /no/such/program: No such file or directory");
  auto directory = Spawn({.argv = {"/bin/true"}, .cwd = "/no/such/place"});
  ASSERT_FALSE(directory);
  EXPECT_THAT(directory.error().message, HasSubstr("in directory /no/such/place: No such file"));
  auto plain = Spawn({.argv = {"/etc/passwd"}});
  ASSERT_FALSE(plain);
  EXPECT_THAT(plain.error().message, HasSubstr("cannot run /etc/passwd: Permission denied"));
  auto unfound = Spawn({.argv = {"no-such-program"}, .env = {"PATH=/usr/bin"}});
  ASSERT_FALSE(unfound);
  auto file = Spawn({.argv = {"/bin/true"}, .fds = {{.target = 0, .path = "/no/input"}}});
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr("standard stream"));
  // None of these is reported as an exit.
  auto good = Spawn({.argv = {"/bin/true"}});
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(WaitExit(good->pid), 0);
  EXPECT_EQ(exits_.size(), 1u);
}

TEST_P(SlotTest, GivesArgumentsEnvironmentAndDirectoryUnchanged) {
  SpawnRequest request;
  request.env = {"EMPTY=", "WORD=a b\tc", "LONG=" + std::string(100'000, 'x')};
  request.cwd = "/usr";
  const std::string out = Run("pwd; echo \"[$EMPTY][$WORD][${#LONG}]\"", std::move(request));
  EXPECT_EQ(out, "/usr\n[][a b\tc][100000]\n");
}

TEST_P(SlotTest, PassesOnlyTheNamedDescriptors) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);  // not close-on-exec, on purpose
  Fd ours(pair[0]), theirs(pair[1]);
  SpawnRequest request;
  request.fds = {{.target = 9, .fd = theirs.get()},
                 {.target = 5, .fd = ours.get()},
                 {.target = 0, .path = "/etc/passwd", .open_flags = O_RDONLY}};
  const std::string out =
      Run("cd /proc/$$/fd; for i in $(seq 0 1000); do test -e $i && printf '%s ' $i; done; "
          "echo; readlink 0 2",
          std::move(request));
  EXPECT_EQ(out, "0 1 2 5 9 \n/etc/passwd\n/dev/null\n");
}

TEST_P(SlotTest, DescriptorsMaySwapNumbers) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  Fd read_end(ends[0]), write_end(ends[1]);
  SpawnRequest request;
  request.argv = {"/bin/sh", "-c", std::format("echo through >&{}", read_end.get())};
  request.fds = {{.target = read_end.get(), .fd = write_end.get()},
                 {.target = write_end.get(), .fd = read_end.get()}};
  ASSERT_TRUE(Spawn(request));
  write_end.Close();
  EXPECT_EQ(ReadAll(read_end.get()), "through\n");
}

TEST_P(SlotTest, StartsSessionsWithDefaultSignals) {
  std::signal(SIGPIPE, SIG_IGN);
  const std::string out =
      Run("grep -E '^Sig(Blk|Ign)' /proc/self/status | tr -s '\\t\\n' '  '; "
          "set -- $(cat /proc/$$/stat); test $1 = $5 && test $1 = $6 && echo leader");
  std::signal(SIGPIPE, SIG_DFL);
  EXPECT_EQ(out, "SigBlk: 0000000000000000 SigIgn: 0000000000000000 leader\n");
}

TEST_P(SlotTest, BindsToCores) {
  SpawnRequest request;
  request.cpus = {0};
  EXPECT_EQ(Run("grep Cpus_allowed_list /proc/$$/status", std::move(request)),
            "Cpus_allowed_list:\t0\n");
}

TEST_P(SlotTest, ReapsOrphans) {
  // The background process outlives its parent; its exit status tells that it was reaped here.
  auto parent = Spawn({.argv = {"/bin/sh", "-c", "(read line; exit 5) <&3 & exit 0"}, .fds = {}});
  ASSERT_TRUE(parent);
  EXPECT_EQ(WaitExit(parent->pid), 0);
  EXPECT_TRUE(slot_->DispatchUntil([&] { return exits_.size() == 2; }, seconds(20)));
}

TEST_P(SlotTest, EverythingEndsWithTheSlot) {
  auto leader = Spawn({.argv = {"/bin/sh", "-c", "setsid sleep 1000 & setsid sleep 1000"}});
  ASSERT_TRUE(leader) << leader.error().message;
  ASSERT_GT(leader->host_pid, 0);
  EXPECT_TRUE(Exists(leader->host_pid));
  slot_.reset();
  EXPECT_FALSE(Exists(leader->host_pid));
}

// A pipe's end that the init holds, and one that a process in the slot has.
TEST_P(SlotTest, WhatTheInitHoldsIsTheLastToClose) {
  int held[2], given[2];
  ASSERT_EQ(pipe2(held, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(given, O_CLOEXEC), 0);
  const Fd held_read(held[0]), given_read(given[0]);
  const auto closed = [](const Fd& fd, int timeout_ms) {
    pollfd wait{fd.get(), POLLIN, 0};
    return poll(&wait, 1, timeout_ms) == 1;
  };
  ASSERT_TRUE(Spawn({.argv = {"/bin/sleep", "1000"}, .fds = {{.target = 3, .fd = given[1]}}}));
  const Result<std::uint32_t> first = slot_->Hold(held[1]), second = slot_->Hold(held[1]);
  ASSERT_TRUE(first && second);
  close(held[1]);
  close(given[1]);
  slot_->LetGo(*first);
  ASSERT_TRUE(Spawn({.argv = {"/bin/true"}}));  // by now it has obeyed
  EXPECT_FALSE(closed(held_read, 0));
  std::jthread end([this] { slot_.reset(); });
  EXPECT_TRUE(closed(held_read, 20'000));
  EXPECT_TRUE(closed(given_read, 0));
}

TEST_P(SlotTest, WhatTheInitLetsGoIsClosed) {
  int held[2];
  ASSERT_EQ(pipe2(held, O_CLOEXEC), 0);
  const Fd held_read(held[0]);
  const Result<std::uint32_t> number = slot_->Hold(held[1]);
  ASSERT_TRUE(number);
  close(held[1]);
  slot_->LetGo(*number);
  pollfd wait{held_read.get(), POLLIN, 0};
  EXPECT_EQ(poll(&wait, 1, 20'000), 1);
}

TEST_P(SlotTest, AdoptGivesAHandle) {
  const Spawned sleeper = Spawn({.argv = {"/bin/sleep", "1000"}}).value();
  const Spawned adopted = Adopt(sleeper.pid).value();
  EXPECT_EQ(adopted.host_pid, sleeper.host_pid);
  EXPECT_EQ(HostTid(sleeper.host_pid, sleeper.pid).value_or(0), sleeper.host_pid);
  EXPECT_FALSE(Adopt(9999).has_value());
}

TEST_P(SlotTest, SixteenAtOnce) {
  int started = 0;
  for (int i = 0; i < 16; ++i) {
    slot_->Spawn({.argv = {"/bin/true"}, .own_time_namespace = true}, [&](Result<Spawned> done) {
      EXPECT_TRUE(done) << done.error().message;
      ++started;
    });
  }
  EXPECT_TRUE(
      slot_->DispatchUntil([&] { return started == 16 && exits_.size() == 16; }, seconds(20)));
}

TEST_P(SlotTest, ADeadInitIsTold) {
  auto sleeper = Spawn({.argv = {"/bin/sleep", "1000"}});
  ASSERT_TRUE(sleeper);
  kill(slot_->init_host_pid(), SIGKILL);
  EXPECT_TRUE(slot_->DispatchUntil([&] { return lost_; }, seconds(20)));
  EXPECT_FALSE(Spawn({.argv = {"/bin/true"}}));
  // The kernel ends what is in the slot a moment after it closed the init's socket.
  pollfd wait{sleeper->pidfd.get(), POLLIN, 0};
  EXPECT_EQ(poll(&wait, 1, 20'000), 1);
}

TEST_P(SlotTest, EndsWhenItsProxyIsKilled) {
  // A child plays the proxy: it makes a slot with a sleeper in it, tells its PID, and is killed.
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t proxy = fork();
  if (proxy == 0) {
    (void)slot_.release();  // it is the parent's
    SetUp();
    const pid_t pid = Spawn({.argv = {"/bin/sleep", "1000"}}).value().host_pid;
    [[maybe_unused]] ssize_t written = write(ends[1], &pid, sizeof(pid));
    for (;;) pause();
  }
  pid_t sleeper = 0;
  ASSERT_EQ(read(ends[0], &sleeper, sizeof(sleeper)), static_cast<ssize_t>(sizeof(sleeper)));
  ASSERT_GT(sleeper, 0);
  Fd pidfd(PidfdOpen(sleeper));
  ASSERT_TRUE(static_cast<bool>(pidfd));
  kill(proxy, SIGKILL);
  waitpid(proxy, nullptr, 0);
  pollfd wait{pidfd.get(), POLLIN, 0};
  EXPECT_EQ(poll(&wait, 1, 20'000), 1);
  close(ends[0]);
  close(ends[1]);
}

class NamespaceTest : public SlotTest {};
INSTANTIATE_TEST_SUITE_P(Slot, NamespaceTest, testing::Values(true));

TEST_P(NamespaceTest, HidesTheHost) {
  EXPECT_TRUE(slot_->lost().empty()) << slot_->lost().front();
  EXPECT_EQ(Run("readlink /proc/self; test -r /proc/1/comm && cat /proc/1/comm"),
            "3\nxmpi-slot-init\n");
  const std::string own = Link("/proc/self/ns/pid");
  EXPECT_NE(Run("readlink /proc/self/ns/pid"), own + "\n");
  EXPECT_NE(Run("readlink /proc/self/ns/mnt"), Link("/proc/self/ns/mnt") + "\n");
}

TEST_P(NamespaceTest, ProcIsTheSlots) {
  auto sleeper = Spawn({.argv = {"/bin/sleep", "1000"}});
  ASSERT_TRUE(sleeper);
  const Fd comm(openat(slot_->proc_fd(), std::format("{}/comm", sleeper->pid).c_str(), O_RDONLY));
  ASSERT_TRUE(static_cast<bool>(comm));
  EXPECT_EQ(ReadAll(comm.get()), "sleep\n");
}

TEST_P(NamespaceTest, EachRankHasAClockOfItsOwnThatGoesOn) {
  std::ifstream uptime("/proc/uptime");
  long before = 0;
  uptime >> before;
  SpawnRequest request;
  request.own_time_namespace = true;
  const long seen = std::stol(Run("cut -d. -f1 /proc/uptime", request));
  EXPECT_GE(seen, before);
  EXPECT_LE(seen, before + 20);

  request.argv = {"/bin/sleep", "1000"};
  std::set<std::string> clocks = {Link("/proc/self/ns/time")};
  for (int i = 0; i < 2; ++i) {
    clocks.insert(Link(std::format("/proc/{}/ns/time", Spawn(request).value().host_pid)));
  }
  EXPECT_EQ(clocks.size(), 3u);
  request.own_time_namespace = false;
  EXPECT_TRUE(
      clocks.contains(Link(std::format("/proc/{}/ns/time", Spawn(request).value().host_pid))));
}

TEST_P(NamespaceTest, PidsCanBeKeptAway) {
  auto helper = Spawn({.argv = {"/bin/true"}, .after_pid = 5000});
  ASSERT_TRUE(helper) << helper.error().message;
  EXPECT_GT(helper->pid, 5000);
}

TEST(PidsFreeAfter, SkipsTheUsedOnes) {
  EXPECT_EQ(PidsFreeAfter({}, 1000, 32768), 1000);
  const std::vector<pid_t> used = {2, 1500, 2100, 30000};
  EXPECT_EQ(PidsFreeAfter(used, 1000, 32768), 2100);
  EXPECT_EQ(PidsFreeAfter(used, 100, 32768), 1000);
  EXPECT_EQ(PidsFreeAfter(used, 32000, 32768), 0);
}

void ExpectBoundedDirectory(const Result<Fd>& directory) {
  ASSERT_TRUE(directory) << directory.error().message;
  Fd file(openat(directory->get(), "a", O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_TRUE(static_cast<bool>(file));
  EXPECT_EQ(write(file.get(), "x", 1), 1);
  // Its size is bounded.
  EXPECT_NE(posix_fallocate(file.get(), 0, 2 << 20), 0);
  std::ifstream mounts("/proc/self/mountinfo");
  const std::string text((std::istreambuf_iterator<char>(mounts)), {});
  EXPECT_THAT(text, testing::Not(HasSubstr("size=1024k")));
}

TEST(MemoryDirectory, HoldsFilesAndIsNowhere) {
  ExpectBoundedDirectory(MakeMemoryDirectory(1 << 20));
}

// Another process reaches the files through the descriptor, as criu does.
TEST(MemoryDirectory, IsAPlainUsersToo) {
  const pid_t user = fork();
  if (user == 0) {
    if (setresgid(1500, 1500, 1500) != 0 || setresuid(1500, 1500, 1500) != 0) _exit(2);
    prctl(PR_SET_DUMPABLE, 1);  // as a login's processes are
    const Result<Fd> directory = MakeMemoryDirectory(1 << 20);
    ExpectBoundedDirectory(directory);
    if (!directory) _exit(1);
    const std::string path = std::format("/proc/{}/fd/{}/a", getpid(), directory->get());
    const int reader = fork();
    if (reader == 0) _exit(open(path.c_str(), O_RDWR) < 0);
    int status = 1;
    waitpid(reader, &status, 0);
    _exit(status != 0 || testing::Test::HasFailure());
  }
  int status = 1;
  waitpid(user, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace xmpi::os
