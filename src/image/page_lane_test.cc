// Lanes and the store against each other: several ranks, rounds and lanes, and connections that
// break or carry something else than was sent. What the store calls right is what the source has.
#include "image/page_lane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <format>
#include <random>
#include <thread>

#include "base/fd.h"
#include "image/hash.h"
#include "image/page_store.h"
#include "image/page_testing.h"
#include "image/source.h"
#include "image/testing.h"

namespace xmpi::image {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kBase = 5 * kRegionBytes;
constexpr std::uint64_t kLimit = 64u << 20;

std::uint64_t At(std::uint64_t page) { return kBase + page * kPageBytes; }

// The digests as they are by the memory itself, whatever was sent.
std::vector<TaskMemory> TruthOf(const FakeMemory& memory) {
  std::vector<TaskMemory> tasks;
  for (const auto& [pid, pages] : memory.tasks) {
    std::map<std::uint64_t, PageHashes> regions;
    for (const auto& [address, page] : pages)
      regions[RegionOf(address)].Set(PageInRegion(address), HashOf(page));
    const std::vector<PageRun> runs = memory.Runs(pid);
    tasks.push_back(
        {pid, runs, *Digest(runs, [&](std::uint64_t region) { return &regions.at(region); })});
  }
  return tasks;
}

// One lane and its store, without a connection: what is sent is kept, to be given to the store.
class OneLane {
 public:
  explicit OneLane(std::uint64_t limit_bytes = kLimit) : store({0, 1}, limit_bytes) { Connect(); }

  void Connect() {
    connection = store.Open({.stream = {}, .lane = 1, .lanes = 1}).value();
    ASSERT_TRUE(lane.OnConnected(connection.accepted));
    wire.clear();
  }
  PassStats Send(RankId rank, pid_t pid, FakeMemory& memory) {
    return lane.Send(rank, pid, memory, memory.Runs(pid), AppendTo(&wire)).value();
  }
  Result<> Deliver() {
    std::string_view rest = wire;
    std::vector<std::byte> buffer(kMaxPayloadBytes);
    while (!rest.empty()) {
      XMPI_ASSIGN_OR_RETURN(const Chunk chunk, ReadChunk(TakeFrom(&rest), buffer));
      XMPI_RETURN_IF_ERROR(store.Accept(connection, chunk));
    }
    wire.clear();
    return {};
  }

  PageStore store;
  PageLane lane{1, 1};
  LaneConnection connection;
  std::string wire;
};

TEST(PageLane, SendsOnlyWhatDiffers) {
  OneLane one;
  FakeMemory memory;
  for (std::uint64_t i = 0; i < 100; ++i) memory.tasks[7][At(i)] = PageOf(2 * i + 2);
  for (std::uint64_t i = 100; i < 150; ++i) memory.tasks[7][At(i)] = PageOf(0);
  for (std::uint64_t i = 150; i < 160; ++i) memory.tasks[7][At(i)] = PageOf(2);
  PassStats stats = one.Send(0, 7, memory);
  EXPECT_EQ(stats.read, 160u);
  EXPECT_EQ(stats.sent, 100u);
  EXPECT_EQ(stats.zero, 50u);
  EXPECT_EQ(stats.copied, 10u);
  EXPECT_EQ(stats.raw_bytes, 100 * kPageBytes);
  EXPECT_EQ(stats.wire_bytes, one.wire.size());
  ASSERT_TRUE(one.Deliver());
  EXPECT_TRUE(IsSame(*one.store.Rank(0), memory));

  memory.tasks[7][At(5)] = PageOf(1000);
  memory.tasks[7][At(90)] = PageOf(0);
  stats = one.Send(0, 7, memory);
  EXPECT_EQ(stats.equal, 158u);
  EXPECT_EQ(stats.sent, 1u);
  EXPECT_EQ(stats.zero, 1u);
  ASSERT_TRUE(one.Deliver());
  EXPECT_TRUE(IsSame(*one.store.Rank(0), memory));
  EXPECT_EQ(one.Send(0, 7, memory).wire_bytes, 0u);
}

TEST(PageLane, AnotherRanksPagesAreSentOnce) {
  OneLane one;
  FakeMemory memory, other;
  for (std::uint64_t i = 0; i < 20; ++i) memory.tasks[7][At(i)] = PageOf(2 * i + 2);
  for (std::uint64_t i = 0; i < 20; ++i) other.tasks[9][At(900 + i)] = PageOf(2 * i + 2);
  one.Send(0, 7, memory);
  EXPECT_EQ(one.Send(1, 9, other).copied, 20u);
  ASSERT_TRUE(one.Deliver());
  EXPECT_TRUE(IsSame(*one.store.Rank(0), memory));
  EXPECT_TRUE(IsSame(*one.store.Rank(1), other));
}

TEST(PageLane, AChangedPageIsNoLongerCopiedFrom) {
  OneLane one;
  FakeMemory memory;
  memory.tasks[7] = {{At(0), PageOf(2)}, {At(1), PageOf(4)}};
  one.Send(0, 7, memory);
  // Each gets the other's content: the first is overwritten before the second could be copied.
  std::swap(memory.tasks[7][At(0)], memory.tasks[7][At(1)]);
  const PassStats stats = one.Send(0, 7, memory);
  EXPECT_EQ(stats.copied, 1u);
  EXPECT_EQ(stats.sent, 1u);
  // And back to what it was itself.
  memory.tasks[7][At(0)] = PageOf(2);
  one.Send(0, 7, memory);
  ASSERT_TRUE(one.Deliver());
  EXPECT_TRUE(IsSame(*one.store.Rank(0), memory));
}

TEST(PageLane, ForgetsWhatDidNotArrive) {
  OneLane one;
  FakeMemory memory;
  memory.tasks[7][At(0)] = PageOf(2);
  one.Send(0, 7, memory);
  ASSERT_TRUE(one.Deliver());
  memory.tasks[7][At(600)] = PageOf(4);
  one.Send(0, 7, memory);
  one.Connect();  // what was sent last is lost
  const PassStats stats = one.Send(0, 7, memory);
  EXPECT_EQ(stats.equal, 1u);
  EXPECT_EQ(stats.sent, 1u);
  ASSERT_TRUE(one.Deliver());
  EXPECT_TRUE(IsSame(*one.store.Rank(0), memory));
  EXPECT_FALSE(one.lane.OnConnected(3));
}

TEST(PageLane, AWriteThatFailsMayHaveArrived) {
  OneLane one;
  FakeMemory memory;
  memory.tasks[7][At(0)] = PageOf(2);
  const WriteAll write = [&](std::span<const std::byte> bytes) -> Result<> {
    one.wire += AsText(bytes);
    if (bytes.size() == kChunkHeaderBytes) return {};
    return Fail(ErrorCode::kUnreachable, "the connection closed");
  };
  EXPECT_FALSE(one.lane.Send(0, 7, memory, memory.Runs(7), write));
  ASSERT_TRUE(one.Deliver());
  one.Connect();
  EXPECT_EQ(one.Send(0, 7, memory).equal, 1u);
}

TEST(PageLane, APassThatIsCalledOffIsMadeGood) {
  OneLane one;
  FakeMemory memory;
  for (std::uint64_t i = 0; i < 600; ++i) memory.tasks[7][At(i)] = PageOf(2 * i + 2);
  int reads = 0;
  const Pace pace = [&](std::size_t bytes) -> Result<> {
    EXPECT_LE(bytes, kMaxPayloadBytes);
    if (++reads == 3) return Fail(ErrorCode::kRefused, "called off");
    return {};
  };
  EXPECT_FALSE(one.lane.Send(0, 7, memory, memory.Runs(7), AppendTo(&one.wire), pace));
  one.Send(0, 7, memory);
  ASSERT_TRUE(one.Deliver());
  EXPECT_TRUE(IsSame(*one.store.Rank(0), memory));
}

TEST(PageLane, PagesThatHaveGoneAreCounted) {
  OneLane one;
  FakeMemory memory;
  for (std::uint64_t i = 0; i < 210; ++i) memory.tasks[7][At(i)] = PageOf(2 * i + 2);
  const std::vector<PageRun> runs = memory.Runs(7);
  memory.tasks[7].erase(At(0));
  for (std::uint64_t i = 4; i < 204; ++i) memory.tasks[7].erase(At(i));
  memory.tasks[7].erase(At(209));
  std::size_t paced = 0;
  const Pace pace = [&](std::size_t bytes) -> Result<> {
    paced += bytes;
    return {};
  };
  const auto stats = one.lane.Send(0, 7, memory, runs, AppendTo(&one.wire), pace);
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->unreadable, 202u);
  EXPECT_EQ(stats->sent, 8u);
  // A hole does not count over and over against who paces.
  EXPECT_LT(paced, 3 * 210 * kPageBytes);
  EXPECT_FALSE(one.lane.Send(0, 8, memory, runs, AppendTo(&one.wire)));  // no such process
}

TEST(PageStore, FindsReleasesAndPrunes) {
  OneLane one;
  FakeMemory memory;
  for (std::uint64_t i = 0; i < 4; ++i) memory.tasks[7][At(i)] = PageOf(2 * i + 2);
  for (std::uint64_t i = 4; i < 8; ++i) memory.tasks[7][At(i)] = PageOf(0);
  for (std::uint64_t i = 510; i < 520; ++i) memory.tasks[7][At(i)] = PageOf(2 * i + 2);
  one.Send(0, 7, memory);
  ASSERT_TRUE(one.Deliver());
  const std::shared_ptr<StoredPages> pages = one.store.Rank(0);
  using Kind = StoredPages::Kind;
  const auto expect = [&](std::uint64_t page, std::uint64_t most, Kind kind, std::uint64_t count) {
    const StoredPages::Found found = pages->Find(7, At(page), most);
    EXPECT_EQ(found.kind, kind) << page;
    EXPECT_EQ(found.pages, count) << page;
    if (kind != Kind::kData) return;
    EXPECT_EQ(std::memcmp(found.data, PageOf(2 * page + 2).data(), kPageBytes), 0);
  };
  expect(0, 100, Kind::kData, 4);
  expect(1, 2, Kind::kData, 2);
  expect(4, 100, Kind::kZero, 4);
  expect(8, 10000, Kind::kAbsent, 502);
  expect(510, 100, Kind::kData, 2);
  expect(512, 100, Kind::kData, 8);
  expect(2000, 7, Kind::kAbsent, 7);
  const std::uint64_t before = one.store.bytes();
  pages->Release(7, {At(1), 5});
  EXPECT_EQ(one.store.bytes(), before - 3 * kPageBytes);
  expect(0, 100, Kind::kData, 1);
  expect(1, 100, Kind::kAbsent, 5);
  expect(6, 100, Kind::kZero, 2);
  one.store.Prune(0, std::vector<TaskMemory>{{7, {{At(511), 3}}, {}}});
  expect(0, 10, Kind::kAbsent, 10);
  expect(511, 10, Kind::kData, 1);
  expect(512, 10, Kind::kData, 2);
  one.store.Prune(0, {});
  EXPECT_EQ(one.store.bytes(), 0u);
}

TEST(PageStore, ZeroPagesTakeNoMemoryAndTheLimitHolds) {
  OneLane one(100 * kPageBytes);
  FakeMemory memory;
  for (std::uint64_t i = 0; i < 512; ++i) memory.tasks[7][At(i)] = PageOf(0);
  one.Send(0, 7, memory);
  ASSERT_TRUE(one.Deliver());
  EXPECT_LT(one.store.bytes(), 3 * kPageBytes);
  for (std::uint64_t i = 0; i < 90; ++i) memory.tasks[7][At(i)] = PageOf(2 * i + 2);
  one.Send(0, 7, memory);
  ASSERT_TRUE(one.Deliver());
  for (std::uint64_t i = 90; i < 110; ++i) memory.tasks[7][At(i)] = PageOf(2 * i + 2);
  one.Send(0, 7, memory);
  const Result<> full = one.Deliver();
  ASSERT_FALSE(full);
  EXPECT_THAT(full.error().message, HasSubstr("room"));
  one.store.Drop(0);
  EXPECT_EQ(one.store.bytes(), 0u);
  // The books count too: regions with nothing but one zero page.
  one.Connect();
  memory.tasks[7].clear();
  for (std::uint64_t i = 0; i < 200; ++i) memory.tasks[7][At(512 * i)] = PageOf(0);
  one.Send(0, 7, memory);
  EXPECT_FALSE(one.Deliver());
}

TEST(PageStore, VerifiesAndThenStaysAsItIs) {
  OneLane one;
  FakeMemory memory;
  for (std::uint64_t i = 0; i < 20; ++i) memory.tasks[7][At(i)] = PageOf(2 * i + 2);
  one.Send(0, 7, memory);
  ASSERT_TRUE(one.Deliver());
  ASSERT_TRUE(one.store.Verify(0, TruthOf(memory)));
  memory.tasks[7][At(0)] = PageOf(1000);
  one.Send(0, 7, memory);
  EXPECT_FALSE(one.Deliver());
}

TEST(PageStore, WhatIsDamagedIsDroppedAndComesAgain) {
  OneLane one;
  FakeMemory memory;
  for (std::uint64_t i = 0; i < 20; ++i) memory.tasks[7][At(i)] = PageOf(2 * i + 2);
  one.Send(0, 7, memory);
  ASSERT_TRUE(one.Deliver());
  std::vector<TaskMemory> truth = TruthOf(memory);
  truth[0].digest.low ^= 1;
  const Result<> verified = one.store.Verify(0, truth);
  ASSERT_FALSE(verified);
  EXPECT_EQ(verified.error().code, ErrorCode::kUnreachable);
  EXPECT_EQ(one.store.bytes(), 0u);
  memory.tasks[7][At(3)] = PageOf(500);
  one.Send(0, 7, memory);
  EXPECT_EQ(one.Deliver().error().code, ErrorCode::kUnreachable);  // it must connect anew
  one.Connect();
  EXPECT_EQ(one.Send(0, 7, memory).sent, 20u);
  ASSERT_TRUE(one.Deliver());
  EXPECT_TRUE(one.store.Verify(0, TruthOf(memory)));
}

TEST(PageStore, RefusesWhatIsForeign) {
  PageStore store({0}, kLimit);
  EXPECT_FALSE(store.Open({.stream = {}, .lane = 0, .lanes = 2}));
  const LaneConnection connection = store.Open({.stream = {}, .lane = 1, .lanes = 2}).value();
  EXPECT_FALSE(store.Open({.stream = {}, .lane = 1, .lanes = 3}));
  std::uint64_t number = 0;
  const auto say = [&](RankId rank, std::uint32_t pid, std::uint64_t address,
                       PageOrigin from = {}) {
    PageChunkWriter writer;
    Compressor compressor;
    from.pid == 0 ? writer.AddZero(address) : writer.AddCopy(address, from);
    const auto payload = writer.Encode(&compressor);
    return store.Accept(connection, {{.kind = ChunkKind::kPages,
                                      .rank = rank,
                                      .file = pid,
                                      .offset = number,
                                      .length = static_cast<std::uint32_t>(payload.size())},
                                     payload});
  };
  const std::uint64_t ours = 4 * kRegionBytes, theirs = 5 * kRegionBytes;
  EXPECT_FALSE(say(1, 7, ours));                             // no such rank
  EXPECT_FALSE(say(0, 0, ours));                             // no process
  EXPECT_FALSE(say(0, 7, theirs));                           // another lane's region
  EXPECT_FALSE(say(0, 7, ours, {0, 7, ours + kPageBytes}));  // nothing there to copy
  EXPECT_FALSE(say(0, 7, ours, {1, 7, ours}));               // of no such rank
  EXPECT_FALSE(say(0, 7, ours, {0, 7, theirs}));             // on another lane
  EXPECT_EQ(store.Accepted(connection).value(), 0u);
  number = 1;
  EXPECT_FALSE(say(0, 7, ours));  // not the next chunk
  number = 0;
  EXPECT_TRUE(say(0, 7, ours));
  EXPECT_FALSE(say(0, 7, ours));  // the same again
  ASSERT_TRUE(store.Open({.stream = {}, .lane = 1, .lanes = 2}));
  number = 1;
  EXPECT_EQ(say(0, 7, ours).error().code, ErrorCode::kUnreachable);  // the former connection
}

// Random memory of two ranks that changes from round to round.
class Life {
 public:
  explicit Life(unsigned seed) : random_(seed) {
    for (int i = 0; i < 300; ++i) Touch();
  }
  void Live() {
    for (int i = 0; i < 60; ++i) Touch();
    for (FakeMemory& memory : ranks) {
      for (auto& [pid, pages] : memory.tasks) {
        for (int i = 0; i < 3 && pages.size() > 3; ++i)
          pages.erase(std::next(pages.begin(), static_cast<int>(Upto(pages.size()))));
      }
    }
  }
  std::size_t Upto(std::size_t end) {
    return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_);
  }

  std::array<FakeMemory, 2> ranks;

 private:
  void Touch() {
    // Few contents, so that many pages are alike; four regions.
    auto& pages = ranks[Upto(2)].tasks[static_cast<pid_t>(10 + Upto(2))];
    pages[At(Upto(4) * 512 + Upto(40))] = PageOf(Upto(60));
  }

  std::mt19937 random_;
};

class Transfer {
 public:
  explicit Transfer(std::optional<Encoding> encoding) : lanes(MakeLanes(2, encoding)) {}

  // All of the ranks that are not yet right by all lanes, each on a new connection, whose bytes go
  // through `harm`.
  bool Pass(Life& life, const std::function<void(std::string*)>& harm) {
    bool whole = true;
    for (const auto& lane : lanes) {
      const LaneConnection connection =
          store.Open({.stream = {}, .lane = static_cast<std::uint16_t>(lane->lane()), .lanes = 2})
              .value();
      EXPECT_TRUE(lane->OnConnected(connection.accepted));
      std::string wire;
      for (RankId rank = 0; rank < 2; ++rank) {
        if (verified_[rank]) continue;
        for (const auto& [pid, pages] : life.ranks[rank].tasks) {
          EXPECT_TRUE(
              lane->Send(rank, pid, life.ranks[rank], life.ranks[rank].Runs(pid), AppendTo(&wire)));
        }
      }
      harm(&wire);
      whole = Deliver(connection, wire) && whole;
    }
    return whole;
  }
  // Right, or refused.
  void Judge(Life& life) {
    for (RankId rank = 0; rank < 2; ++rank) {
      if (verified_[rank]) continue;
      const Result<> verified = store.Verify(rank, TruthOf(life.ranks[rank]));
      if (verified) {
        EXPECT_TRUE(IsSame(*store.Rank(rank), life.ranks[rank]));
      } else {
        EXPECT_EQ(verified.error().code, ErrorCode::kUnreachable);
      }
      verified_[rank] = verified.has_value();
    }
  }
  bool verified() const { return verified_[0] && verified_[1]; }

  PageStore store{{0, 1}, kLimit};
  Lanes lanes;

 private:
  bool Deliver(const LaneConnection& connection, std::string_view wire) {
    static std::vector<std::byte> buffer(kMaxPayloadBytes);
    while (!wire.empty()) {
      const Result<Chunk> chunk = ReadChunk(TakeFrom(&wire), buffer);
      if (!chunk || !store.Accept(connection, *chunk)) return false;
    }
    return true;
  }

  bool verified_[2] = {};
};

const auto kNoHarm = [](std::string*) {};

void TryHarm(unsigned seed, const std::function<void(Life&, std::string*)>& harm) {
  SCOPED_TRACE(std::format("seed {}", seed));
  Life life(seed);
  const std::optional<Encoding> encodings[] = {std::nullopt, Encoding::kLz4, Encoding::kZstd};
  Transfer transfer(encodings[seed % 3]);
  for (int round = 0; round < 3; ++round) {
    transfer.Pass(life, [&](std::string* wire) { harm(life, wire); });
    life.Live();
  }
  if (seed % 2 == 0) {  // as if nobody had noticed
    transfer.Pass(life, [&](std::string* wire) { harm(life, wire); });
    transfer.Judge(life);
  }
  EXPECT_TRUE(transfer.Pass(life, kNoHarm));
  transfer.Judge(life);
  EXPECT_TRUE(transfer.verified());
}

TEST(PageStream, CutAnywhereItEndsRightOrRefused) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    TryHarm(seed, [](Life& life, std::string* wire) {
      if (!wire->empty() && life.Upto(3) > 0) wire->resize(life.Upto(wire->size()));
    });
  }
}

TEST(PageStream, DamagedAnywhereItEndsRightOrRefused) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    TryHarm(seed, [](Life& life, std::string* wire) {
      if (wire->empty() || life.Upto(3) == 0) return;
      char& byte = (*wire)[life.Upto(wire->size())];
      byte = static_cast<char>(byte ^ (1 << life.Upto(8)));
    });
  }
}

TEST(PageStream, MovedBytesEndRightOrRefused) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    TryHarm(seed, [](Life& life, std::string* wire) {
      if (wire->empty() || life.Upto(3) == 0) return;
      const std::size_t from = life.Upto(wire->size());
      const std::string piece = wire->substr(from, life.Upto(20000));
      wire->erase(from, piece.size());
      wire->insert(life.Upto(wire->size() + 1), piece);
    });
  }
}

WriteAll WriteTo(int fd) {
  return [fd](std::span<const std::byte> bytes) -> Result<> {
    while (!bytes.empty()) {
      const ssize_t size = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (size <= 0) return Fail(ErrorCode::kUnreachable, "the connection closed");
      bytes = bytes.subspan(static_cast<std::size_t>(size));
    }
    return {};
  };
}

ReadAll ReadFrom(int fd) {
  return [fd](std::span<std::byte> bytes) -> Result<> {
    while (!bytes.empty()) {
      const ssize_t size = recv(fd, bytes.data(), bytes.size(), 0);
      if (size <= 0) return Fail(ErrorCode::kUnreachable, "the connection closed");
      bytes = bytes.subspan(static_cast<std::size_t>(size));
    }
    return {};
  };
}

// A round of one lane over a connection of its own, the target's end in another thread.
void RunLane(PageLane* lane, PageStore* store, Life* life) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  const Fd source(fds[0]), target(fds[1]);
  std::jthread receiver([&target, store] {
    const ReadAll read = ReadFrom(target.get());
    const WriteAll write = WriteTo(target.get());
    const Result<Begin> begin = ReceiveBegin(read, write, {.slot = 1});
    ASSERT_TRUE(begin);
    const Result<> received = ReceivePages(read, write, *begin, store);
    EXPECT_TRUE(received) << received.error().message;
  });
  const ReadAll read = ReadFrom(source.get());
  const WriteAll write = WriteTo(source.get());
  ASSERT_TRUE(SendBegin(
      write,
      {.stream = {.slot = 1}, .lane = static_cast<std::uint16_t>(lane->lane()), .lanes = 4}));
  const Result<std::uint64_t> accepted = ReceiveAccepted(read);
  ASSERT_TRUE(accepted);
  ASSERT_TRUE(lane->OnConnected(*accepted));
  for (RankId rank = 0; rank < 2; ++rank) {
    for (const auto& [pid, pages] : life->ranks[rank].tasks) {
      ASSERT_TRUE(SendWait(write));
      ASSERT_TRUE(lane->Send(rank, pid, life->ranks[rank], life->ranks[rank].Runs(pid), write));
    }
  }
  const Result<> confirmed = lane->Confirm(read, write);
  EXPECT_TRUE(confirmed) << confirmed.error().message;
  EXPECT_TRUE(SendEnd(write));
}

TEST(PageStream, LanesInThreadsAndImagesThatRestOnThem) {
  Life life(4711);
  PageStore store({0, 1}, kLimit);
  const Lanes lanes = MakeLanes(4);
  for (int round = 0; round < 5; ++round) {
    life.Live();
    std::vector<std::jthread> threads;
    for (const auto& lane : lanes)
      threads.emplace_back([&] { RunLane(lane.get(), &store, &life); });
  }
  // Then the images, whose manifests name the pages.
  ImageMaker maker;
  std::vector<RankImage> images;
  for (RankId rank = 0; rank < 2; ++rank) {
    images.push_back(maker.Make(rank, {{"core.img", "core"}}));
    images.back().manifest.memory = MemoryOf(lanes, rank, life.ranks[rank]);
  }
  MemoryStorage storage;
  Assembler assembler(&storage, {0, 1}, kLimit, &store);
  const std::string stream = StreamOf({.slot = 1}, images);
  std::string_view in = stream;
  std::string answer;
  const Result<> received =
      ReceiveStream(TakeFrom(&in), AppendTo(&answer), {.slot = 1}, &assembler);
  ASSERT_TRUE(received) << received.error().message;
  for (RankId rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(assembler.ManifestOf(rank).memory, TruthOf(life.ranks[rank]));
    store.Prune(rank, assembler.ManifestOf(rank).memory);
    EXPECT_TRUE(IsSame(*store.Rank(rank), life.ranks[rank]));
  }
  // What a store holds can be sent on.
  PageStore third({0, 1}, kLimit);
  PageLane lane(1, 1);
  std::string wire;
  const LaneConnection connection = third.Open({.stream = {}, .lane = 1, .lanes = 1}).value();
  for (const TaskMemory& task : assembler.ManifestOf(0).memory)
    ASSERT_TRUE(lane.Send(0, task.pid, *store.Rank(0), task.runs, AppendTo(&wire)));
  std::vector<std::byte> buffer(kMaxPayloadBytes);
  for (std::string_view rest = wire; !rest.empty();)
    ASSERT_TRUE(third.Accept(connection, ReadChunk(TakeFrom(&rest), buffer).value()));
  EXPECT_TRUE(third.Verify(0, assembler.ManifestOf(0).memory));
  EXPECT_TRUE(IsSame(*third.Rank(0), life.ranks[0]));
}

TEST(PageStream, AnImageWhoseMemoryIsNotHereIsNotWhole) {
  Life life(5);
  ImageMaker maker;
  std::vector<RankImage> images;
  images.push_back(maker.Make(0, {{"core.img", "core"}}));
  images[0].manifest.memory = TruthOf(life.ranks[0]);
  const std::string stream = StreamOf({.slot = 1}, images);
  for (const bool with_store : {false, true}) {
    MemoryStorage storage;
    PageStore store({0}, kLimit);
    Assembler assembler(&storage, {0}, kLimit, with_store ? &store : nullptr);
    std::string_view in = stream;
    std::string answer;
    const Result<> received =
        ReceiveStream(TakeFrom(&in), AppendTo(&answer), {.slot = 1}, &assembler);
    ASSERT_FALSE(received);
    EXPECT_EQ(received.error().code, with_store ? ErrorCode::kUnreachable : ErrorCode::kProtocol);
    EXPECT_FALSE(assembler.complete());
  }
}

}  // namespace
}  // namespace xmpi::image
