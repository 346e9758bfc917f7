// Ranks moved by the real CRIU between two slots of this machine, as between two proxies.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <format>
#include <string>

#include "criu/move_fixture.h"
#include "criu/process_tree.h"
#include "os/namespaces.h"
#include "os/pidfd.h"

namespace xmpi::criu {
namespace {

using testing::HasSubstr;

std::string OnDisk() {
  std::string names;
  for (const char* place : {"/tmp", "/dev/shm", "/var/tmp"}) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(place, error)) {
      const std::string name = entry.path().filename();
      if (name.ends_with(".img") || name.starts_with("parked-")) names += name + " ";
    }
  }
  return names;
}

TEST_F(MoveTest, CheckPasses) {
  auto place = MakePlace();
  const Result<Preflight> result = Check(*place);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_THAT(result->version, testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST_F(MoveTest, CheckNamesAMissingCriu) {
  auto place = MakePlace({.criu = "/no/such/criu"});
  const Result<Preflight> result = Check(*place);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("cannot run /no/such/criu"));
  EXPECT_THAT(result.error().message, HasSubstr("install"));
}

TEST_F(MoveTest, CheckNamesACriuThatIsNone) {
  auto place = MakePlace({.criu = "/bin/false"});
  const Result<Preflight> result = Check(*place);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("criu ended without an answer"));
}

TEST_F(MoveTest, ARankMovesWhileItsOriginalIsStillThere) {
  auto source = MakePlace();
  Rank rank = Start(*source);
  const std::string before = rank.wires.Ask("state");
  ExpectSound(before);

  DumpDone dump = Dump(*source, rank);
  ASSERT_TRUE(dump.image) << dump.image.error().message << "\n" << dump.log;
  EXPECT_EQ(dump.original, ProcessState::kStopped);

  auto target = MakePlace();
  Wires wires = Wires::Make();
  RestoreDone restore = Restore(*target, Transfer(std::move(*dump.image)), wires);
  wires.CloseRankEnds();
  ASSERT_TRUE(restore.pid) << restore.pid.error().message << "\n" << restore.log;
  EXPECT_EQ(*restore.pid, rank.pid);
  EXPECT_EQ(source->checkpointer->State(rank.pid), ProcessState::kStopped);

  const std::string after = wires.Ask("state");
  ExpectSound(after);
  EXPECT_EQ(Field(after, "pid"), Field(before, "pid"));
  EXPECT_EQ(Field(after, "helper"), Field(before, "helper"));
  EXPECT_GE(std::stod(Field(after, "now")), std::stod(Field(before, "now")));
  EXPECT_EQ(OnDisk(), "");

  ASSERT_TRUE(source->checkpointer->Kill(rank.pid));
  Until([&] { return source->exits.contains(rank.pid); });
  EXPECT_EQ(wires.Ask("say still here"), "said");
  EXPECT_EQ(wires.ReadOutput(11), "still here\n");
}

// The restored rank is a child of the slot's init, which tells its exit.
TEST_F(MoveTest, TheInitReapsARestoredRank) {
  auto source = MakePlace(), target = MakePlace();
  Rank rank = Start(*source);
  ASSERT_EQ(Field(rank.wires.Ask("state"), "memory"), "true");
  Rank copy = Move(*source, std::move(rank), *target);
  EXPECT_GT(copy.host_pid, 0);
  EXPECT_EQ(os::HostTid(copy.host_pid, copy.pid).value_or(0), copy.host_pid);
  ASSERT_GT(send(copy.wires.control.get(), "exit 9", 6, MSG_NOSIGNAL), 0);
  Until([&] { return target->exits.contains(copy.pid); });
  EXPECT_EQ(WEXITSTATUS(target->exits[copy.pid]), 9);
}

TEST_F(MoveTest, UnreadInputTravels) {
  auto source = MakePlace(), target = MakePlace();
  Rank rank = Start(*source);
  std::string bytes;
  for (int i = 0; bytes.size() < 60'000; ++i) bytes += std::format("line {}\n", i);
  ASSERT_EQ(write(rank.wires.input.get(), bytes.data(), bytes.size()), std::ssize(bytes));
  EXPECT_EQ(rank.wires.Ask("stdin 1000"), bytes.substr(0, 1000));
  Rank copy = Move(*source, std::move(rank), *target);
  // What the new proxy writes comes behind what was left.
  ASSERT_EQ(write(copy.wires.input.get(), "new", 3), 3);
  std::string rest;
  for (std::size_t left = bytes.size() - 1000 + 3; left > 0;) {
    const std::size_t size = std::min<std::size_t>(left, 8000);
    rest += copy.wires.Ask(std::format("stdin {}", size));
    left -= size;
  }
  EXPECT_EQ(rest, bytes.substr(1000) + "new");
}

TEST_F(MoveTest, NewSocketsHaveTheOldNumbers) {
  auto source = MakePlace(), target = MakePlace();
  Rank copy = Move(*source, Start(*source), *target);
  ASSERT_EQ(write(copy.wires.pmi.get(), "pong", 4), 4);
  EXPECT_EQ(copy.wires.Ask("pmi"), "pong");
  char buffer[8] = {};
  EXPECT_EQ(read(copy.wires.pmi.get(), buffer, sizeof(buffer)), 5);
  EXPECT_STREQ(buffer, "ping\n");
}

TEST_F(MoveTest, ADaemonOfARankIsAStray) {
  auto source = MakePlace();
  Rank rank = Start(*source, 1);
  const int proc = source->slot->proc_fd();
  EXPECT_TRUE(Strays(proc, {rank.pid}).empty());
  EXPECT_EQ(rank.wires.Ask("daemon"), "started");
  const std::vector<Process> strays = Strays(proc, {rank.pid});
  ASSERT_EQ(strays.size(), 1u);
  EXPECT_EQ(strays[0].name, "parked_rank");
}

// Continue is the rollback: the dump changed nothing in the original.
TEST_F(MoveTest, AnOriginalGoesOn) {
  auto source = MakePlace();
  Rank rank = Start(*source);
  ASSERT_EQ(write(rank.wires.input.get(), "unread", 6), 6);
  DumpDone dump = Dump(*source, rank);
  ASSERT_TRUE(dump.image) << dump.image.error().message;
  EXPECT_EQ(dump.image->manifest.ties.size(), 5u);
  ASSERT_TRUE(source->checkpointer->Continue(rank.pid));
  ExpectSound(rank.wires.Ask("state"));
  EXPECT_EQ(rank.wires.Ask("stdin 6"), "unread");
  EXPECT_EQ(source->checkpointer->State(rank.pid), ProcessState::kRunning);
  // And it can be dumped again.
  dump = Dump(*source, rank);
  ASSERT_TRUE(dump.image) << dump.image.error().message;
  ASSERT_TRUE(source->checkpointer->Continue(rank.pid));
  ExpectSound(rank.wires.Ask("state"));
}

// An original that was continued and a copy that was ended: as if nothing had been.
TEST_F(MoveTest, TheImageCanBeRestoredAgainElsewhere) {
  auto source = MakePlace();
  Rank rank = Start(*source);
  DumpDone dump = Dump(*source, rank);
  ASSERT_TRUE(dump.image);
  image::RankImage held = Transfer(std::move(*dump.image));
  for (int attempt = 0; attempt < 2; ++attempt) {
    auto target = MakePlace();
    Wires wires = Wires::Make();
    RestoreDone restore = Restore(*target, std::move(held), wires);
    wires.CloseRankEnds();
    ASSERT_TRUE(restore.pid) << restore.pid.error().message;
    ExpectSound(wires.Ask("state"));
    held = std::move(restore.image);
  }
  ASSERT_TRUE(source->checkpointer->Continue(rank.pid));
  ExpectSound(rank.wires.Ask("state"));
}

TEST_F(MoveTest, ThereAndBackFiveTimes) {
  auto place = MakePlace();
  Rank rank = Start(*place);
  double clock = std::stod(Field(rank.wires.Ask("state"), "now"));
  for (int move = 0; move < 10; ++move) {
    auto next = MakePlace();
    rank = Move(*place, std::move(rank), *next);
    place = std::move(next);
    const std::string state = rank.wires.Ask("state");
    ExpectSound(state);
    EXPECT_GE(std::stod(Field(state, "now")), clock);
    clock = std::stod(Field(state, "now"));
  }
}

// Several ranks of one slot at once, and another slot on the same host with the same PIDs.
TEST_F(MoveTest, SlotsWithTheSamePidsMoveAtOnce) {
  auto first = MakePlace(), second = MakePlace();
  std::vector<Rank> ranks;
  std::vector<Place*> sources;
  for (Place* place : {first.get(), second.get()}) {
    for (int i = 0; i < 3; ++i) {
      ranks.push_back(Start(*place, 4));
      sources.push_back(place);
    }
  }
  EXPECT_EQ(ranks[0].pid, ranks[3].pid);
  std::vector<DumpDone> dumps = DumpAll(sources, ranks);
  auto first_target = MakePlace(), second_target = MakePlace();
  std::vector<pid_t> used;
  for (DumpDone& dump : dumps) {
    ASSERT_TRUE(dump.image) << dump.image.error().message;
    const auto& pids = dump.image->manifest.used_pids;
    used.insert(used.end(), pids.begin(), pids.end());
  }
  std::vector<Wires> wires;
  std::size_t restored = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    wires.push_back(Wires::Make());
    Place& target = i < 3 ? *first_target : *second_target;
    const auto held = HeldOf(*dumps[i].image);
    target.checkpointer->Restore({.image = std::move(*dumps[i].image),
                                  .pages = held,
                                  .ties = wires[i].NewTies(),
                                  .reserved_pids = used},
                                 [&, i](RestoreDone done) {
                                   EXPECT_TRUE(done.pid) << done.pid.error().message;
                                   EXPECT_EQ(done.pid.value_or(0), ranks[i].pid);
                                   ++restored;
                                 });
  }
  Until([&] { return restored == ranks.size(); });
  for (Wires& wire : wires) {
    wire.CloseRankEnds();
    ExpectSound(wire.Ask("state"));
  }
}

TEST_F(MoveTest, ARefusedDumpLeavesTheRankRunning) {
  auto source = MakePlace();
  Rank rank = Start(*source);
  ASSERT_EQ(rank.wires.Ask("tcp"), "holding");
  DumpDone dump = Dump(*source, rank);
  ASSERT_FALSE(dump.image);
  EXPECT_THAT(dump.image.error().message, HasSubstr("cannot dump rank 4"));
  EXPECT_THAT(dump.image.error().message, HasSubstr("CRIU says: "));
  EXPECT_FALSE(dump.log.empty());
  EXPECT_EQ(dump.original, ProcessState::kRunning);
  ASSERT_TRUE(source->checkpointer->Continue(rank.pid));
  ExpectSound(rank.wires.Ask("state"));
}

TEST_F(MoveTest, ADumpOfNobodySaysSo) {
  auto source = MakePlace();
  Rank nobody{.wires = Wires::Make(), .pid = 77, .host_pid = 0};
  DumpDone dump = Dump(*source, nobody);
  ASSERT_FALSE(dump.image);
  EXPECT_EQ(dump.original, ProcessState::kGone);
  EXPECT_FALSE(source->checkpointer->Continue(77));
}

TEST_F(MoveTest, ATakenPidFailsTheRestoreAndIsQuoted) {
  auto source = MakePlace(), target = MakePlace();
  Rank rank = Start(*source);
  DumpDone dump = Dump(*source, rank);
  ASSERT_TRUE(dump.image);
  Rank squatter = Start(*target);
  ASSERT_EQ(squatter.pid, rank.pid);
  Wires wires = Wires::Make();
  RestoreDone restore = Restore(*target, Transfer(std::move(*dump.image)), wires);
  ASSERT_FALSE(restore.pid);
  EXPECT_THAT(restore.pid.error().message, HasSubstr("cannot restore rank 4"));
  EXPECT_THAT(restore.pid.error().message, HasSubstr("CRIU says: "));
  ExpectSound(squatter.wires.Ask("state"));
  // The image is not worse for it.
  auto other = MakePlace();
  Wires second = Wires::Make();
  restore = Restore(*other, std::move(restore.image), second);
  second.CloseRankEnds();
  ASSERT_TRUE(restore.pid) << restore.pid.error().message;
  ExpectSound(second.Ask("state"));
}

TEST_F(MoveTest, AMissingSocketIsNamed) {
  auto source = MakePlace(), target = MakePlace();
  Rank rank = Start(*source);
  DumpDone dump = Dump(*source, rank);
  ASSERT_TRUE(dump.image);
  RestoreDone result{.pid = Fail("no answer"), .image = {}, .log = {}};
  bool done = false;
  target->checkpointer->Restore({.image = std::move(*dump.image), .ties = {}, .reserved_pids = {}},
                                [&](RestoreDone restore) {
                                  result = std::move(restore);
                                  done = true;
                                });
  Until([&] { return done; });
  ASSERT_FALSE(result.pid);
  EXPECT_THAT(result.pid.error().message, HasSubstr("control socket"));
}

// Whatever point of the dump it hits, the original can go on.
TEST_F(MoveTest, ACancelledDumpLeavesTheRankAlive) {
  auto source = MakePlace();
  Rank rank = Start(*source, 64);
  ASSERT_EQ(Field(rank.wires.Ask("state"), "memory"), "true");
  for (int wait_ms : {0, 5, 10, 20, 40, 80}) {
    DumpDone result{.image = Fail("no answer"), .log = {}};
    bool done = false;
    source->checkpointer->Dump({.rank = 4, .pid = rank.pid, .ties = rank.wires.Ties()},
                               [&](DumpDone dump) {
                                 result = std::move(dump);
                                 done = true;
                               });
    // Not a wait for an event: it chooses where in the dump the axe falls.
    poll(nullptr, 0, wait_ms);
    source->slot->Dispatch();
    source->checkpointer->Cancel();
    Until([&] { return done; });
    EXPECT_NE(result.original, ProcessState::kGone);
    ASSERT_TRUE(source->checkpointer->Continue(rank.pid));
    ExpectSound(rank.wires.Ask("state"));
  }
}

// What waits for its turn is cancelled too, and what is asked for afterwards is not.
TEST_F(MoveTest, ACancelReachesThoseThatWait) {
  auto source = MakePlace({.max_parallel = 1});
  std::vector<Rank> ranks;
  std::size_t done = 0;
  for (int i = 0; i < 3; ++i) {
    ranks.push_back(Start(*source, 64));
    EXPECT_EQ(Field(ranks.back().wires.Ask("state"), "memory"), "true");
  }
  for (const Rank& rank : ranks) {
    source->checkpointer->Dump({.rank = 4, .pid = rank.pid, .ties = rank.wires.Ties()},
                               [&](DumpDone dump) {
                                 EXPECT_FALSE(dump.image);
                                 EXPECT_EQ(dump.original, ProcessState::kRunning);
                                 ++done;
                               });
  }
  source->checkpointer->Cancel();
  const DumpDone later = Dump(*source, ranks[0]);
  EXPECT_TRUE(later.image);
  EXPECT_EQ(done, 3u);
  ASSERT_TRUE(source->checkpointer->Continue(ranks[0].pid));
  for (const Rank& rank : ranks) ExpectSound(rank.wires.Ask("state"));
}

TEST_F(MoveTest, ADumpThatTakesTooLongIsEnded) {
  auto source = MakePlace();
  Rank rank = Start(*source, 64);
  DumpDone result{.image = Fail("no answer"), .log = {}};
  bool done = false;
  source->checkpointer->Dump({.rank = 4,
                              .pid = rank.pid,
                              .ties = rank.wires.Ties(),
                              .timeout = std::chrono::milliseconds(1)},
                             [&](DumpDone dump) {
                               result = std::move(dump);
                               done = true;
                             });
  Until([&] { return done; });
  ASSERT_FALSE(result.image);
  EXPECT_THAT(result.image.error().message, HasSubstr("did not answer in time"));
  ASSERT_TRUE(source->checkpointer->Continue(rank.pid));
  ExpectSound(rank.wires.Ask("state"));
}

// A node in a time namespace of its own: the ranks' clocks still go on from where they were.
TEST_F(MoveTest, ClocksGoOnWhereTheNodesDiffer) {
  auto source = MakePlace();
  Rank rank = Start(*source);
  const double before = std::stod(Field(rank.wires.Ask("state"), "now"));
  DumpDone dump = Dump(*source, rank);
  ASSERT_TRUE(dump.image);
  // From here on this test is a process on a node whose clock is far behind and ahead.
  for (const char* offset : {"monotonic 500000 0\nboottime 500000 0", "monotonic 7 0"}) {
    auto target = MakePlaceWithClock(offset);
    Wires wires = Wires::Make();
    RestoreDone restore = Restore(*target, std::move(*dump.image), wires);
    wires.CloseRankEnds();
    ASSERT_TRUE(restore.pid) << restore.pid.error().message;
    const double after = std::stod(Field(wires.Ask("state"), "now"));
    EXPECT_GE(after, before);
    EXPECT_LE(after, before + 60);
    dump.image = std::move(restore.image);
  }
}

}  // namespace
}  // namespace xmpi::criu
