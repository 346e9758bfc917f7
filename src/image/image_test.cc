// The image stream: formats, ranges, source and assembler.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <set>

#include "image/assembler.h"
#include "image/chunk.h"
#include "image/directory_storage.h"
#include "image/source.h"
#include "image/testing.h"

namespace xmpi::image {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

constexpr StreamId kStream{.slot = 2, .epoch = 3, .migration = 4, .attempt = 5};
constexpr std::uint64_t kLimit = 64u << 20;

std::string Noise(std::size_t size, unsigned seed) {
  std::string text(size, '\0');
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (char& c : text) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    c = static_cast<char>(state >> 56);
  }
  return text;
}

TEST(Manifest, SurvivesItsEncoding) {
  Manifest manifest{.rank = 7,
                    .pid = 12,
                    .used_pids = {12, 13, 400},
                    .ties = {{TieKind::kControl, false, 88, ""},
                             {TieKind::kStdin, true, 1ull << 40, std::string("a\0b", 3)}},
                    .files = {{"pages-1.img", 4096, {1, 2}}, {"core-2.img", 0, {3, 4}}},
                    .note = std::string("of a proxy\0to the next", 22),
                    .held = {},
                    .memory = {{12, {{4096, 1}, {12288, 1ull << 33}}, {5, 6}}, {13, {}, {7, 8}}}};
  const std::string bytes = Encode(manifest);
  EXPECT_EQ(DecodeManifest(bytes).value(), manifest);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    EXPECT_FALSE(DecodeManifest(bytes.substr(0, cut))) << cut;
  }
  EXPECT_FALSE(DecodeManifest(bytes + "x"));
}

TEST(Manifest, RefusesMemoryThatCannotBe) {
  Manifest manifest;
  manifest.pid = 12;
  const std::vector<std::vector<TaskMemory>> cases = {
      {{0, {}, {}}},                            // no process
      {{12, {}, {}}, {12, {}, {}}},             // twice
      {{12, {{4097, 1}}, {}}},                  // not aligned
      {{12, {{4096, 0}}, {}}},                  // empty
      {{12, {{4096, 2}, {8192, 1}}, {}}},       // overlapping
      {{12, {{8192, 1}, {4096, 1}}, {}}},       // backwards
      {{12, {{4096, ~std::uint64_t{0}}}, {}}},  // beyond every address
  };
  EXPECT_TRUE(DecodeManifest(Encode(manifest)));
  for (std::size_t i = 0; i < cases.size(); ++i) {
    manifest.memory = cases[i];
    EXPECT_FALSE(DecodeManifest(Encode(manifest))) << i;
  }
}

HeldFile Log() {
  return {.rank = 3,
          .path = "/var/log/a b",
          .use = FileUse::kWritten,
          .locked = true,
          .file_system = "ext4",
          .kernel = "boot",
          .device = 7,
          .mode = 0100640,
          .user = 1,
          .group = 2,
          .state = {.inode = 3, .size = 4, .modified_ns = 5, .changed_ns = 6},
          .earlier = {{.inode = 1, .size = 2, .modified_ns = 3, .changed_ns = 4}},
          .content = ""};
}

TEST(HeldFiles, SurviveTheirEncoding) {
  HeldFile memory = Log();
  memory.use = FileUse::kMapped;
  memory.memory = memory.shared = true;
  const std::vector<HeldFile> files{Log(), memory};
  const std::string bytes = EncodeHeldFiles(files);
  EXPECT_EQ(DecodeHeldFiles(bytes).value(), files);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut)
    EXPECT_FALSE(DecodeHeldFiles(bytes.substr(0, cut)));
  const std::vector<Seen> sights{{Sight::kMissing, {}}, {Sight::kPerhaps, {1, 2}}};
  EXPECT_EQ(DecodeSights(EncodeSights(sights)).value(), sights);
  EXPECT_FALSE(DecodeSights(EncodeSights({{static_cast<Sight>(9), {}}})));
}

TEST(HeldFiles, AreRefusedWhenTheyCannotBe) {
  HeldFile relative = Log();
  relative.path = "etc/passwd";
  EXPECT_FALSE(DecodeHeldFiles(EncodeHeldFiles({relative})));
  HeldFile outside = Log();
  outside.content = "../x";
  EXPECT_FALSE(DecodeHeldFiles(EncodeHeldFiles({outside})));
  // A manifest speaks of content only that is among its files.
  HeldFile carried = Log();
  carried.content = "held-0";
  Manifest manifest;
  manifest.rank = 3;
  manifest.pid = 2;
  manifest.held = {carried};
  EXPECT_FALSE(DecodeManifest(Encode(manifest)));
  manifest.files = {{"held-0", 4, {1, 2}}};
  EXPECT_EQ(DecodeManifest(Encode(manifest)).value(), manifest);
}

TEST(HeldFiles, AreAskedForBeforeAnythingIsSent) {
  std::string question, answer;
  const std::vector<HeldFile> files{Log()};
  std::string_view nothing;
  EXPECT_FALSE(AskSights(TakeFrom(&nothing), AppendTo(&question), files));
  MemoryStorage storage;
  Assembler assembler(&storage, {1}, 1000);
  std::string_view in = question;
  const LookAt look = [](const std::vector<HeldFile>& asked) {
    return std::vector<Seen>(asked.size(), {Sight::kMissing, {}});
  };
  EXPECT_FALSE(ReceiveImages(TakeFrom(&in), AppendTo(&answer), &assembler,
                             {.facts = {}, .look = look}));  // then it closes
  std::string_view back = answer;
  EXPECT_TRUE(ReceiveHoldings(TakeFrom(&back)));
  std::string again;
  const auto sights = AskSights(TakeFrom(&back), AppendTo(&again), files);
  ASSERT_TRUE(sights) << sights.error().message;
  EXPECT_EQ(sights->at(0).sight, Sight::kMissing);
  std::string_view alone = question;
  EXPECT_EQ(ReceiveImages(TakeFrom(&alone), AppendTo(&again), &assembler).error().code,
            ErrorCode::kProtocol);
}

TEST(Manifest, RefusesNamesThatArePaths) {
  for (const char* name : {"", ".", "..", "a/b", "/etc/passwd", "../x"}) {
    EXPECT_FALSE(IsPlainFileName(name)) << name;
    const Manifest manifest{.rank = 0,
                            .pid = 1,
                            .used_pids = {},
                            .ties = {},
                            .files = {{name, 1, {}}},
                            .note = {},
                            .held = {}};
    EXPECT_FALSE(DecodeManifest(Encode(manifest))) << name;
  }
  EXPECT_FALSE(IsPlainFileName(std::string("a\0b", 3)));
  EXPECT_FALSE(IsPlainFileName(std::string(256, 'a')));
  EXPECT_TRUE(IsPlainFileName("pages-1.img"));
  const Manifest twice{.rank = 0,
                       .pid = 1,
                       .used_pids = {},
                       .ties = {},
                       .files = {{"a", 1, {}}, {"a", 1, {}}},
                       .note = {},
                       .held = {}};
  EXPECT_FALSE(DecodeManifest(Encode(twice)));
}

TEST(Chunk, SurvivesTheWire) {
  std::string wire;
  const ChunkHeader header{.kind = ChunkKind::kData,
                           .rank = 3,
                           .file = 9,
                           .offset = 1ull << 33,
                           .length = 5,
                           .total = 1ull << 34};
  ASSERT_TRUE(WriteChunk(AppendTo(&wire), header, AsBytes("hello")));
  EXPECT_EQ(wire.size(), kChunkHeaderBytes + 5);
  EXPECT_EQ(wire.substr(0, 4), "XIMG");
  std::vector<std::byte> buffer(kMaxPayloadBytes);
  std::string_view rest = wire;
  const Chunk chunk = ReadChunk(TakeFrom(&rest), buffer).value();
  EXPECT_EQ(chunk.header, header);
  EXPECT_EQ(AsText(chunk.payload), "hello");
}

TEST(Chunk, EveryFlippedBitIsNoticed) {
  std::string wire;
  const ChunkHeader header{.kind = ChunkKind::kData, .rank = 3, .file = 1, .length = 5};
  ASSERT_TRUE(WriteChunk(AppendTo(&wire), header, AsBytes("hello")));
  std::vector<std::byte> buffer(kMaxPayloadBytes);
  for (std::size_t bit = 0; bit < wire.size() * 8; ++bit) {
    std::string bad = wire;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    std::string_view rest = bad;
    EXPECT_FALSE(ReadChunk(TakeFrom(&rest), buffer)) << "bit " << bit;
  }
}

TEST(Ranges, RefuseWhatTheyHave) {
  Ranges ranges;
  EXPECT_TRUE(ranges.Add(10, 20));
  EXPECT_TRUE(ranges.Add(30, 40));
  EXPECT_FALSE(ranges.Add(15, 25));
  EXPECT_FALSE(ranges.Add(19, 31));
  EXPECT_FALSE(ranges.Add(5, 50));
  EXPECT_FALSE(ranges.Add(12, 13));
  EXPECT_FALSE(ranges.Add(5, 5));
  EXPECT_EQ(ranges.NextMissing(10), 20u);
  EXPECT_EQ(ranges.NextMissing(9), 9u);
  EXPECT_EQ(ranges.NextHeld(20, 100), 30u);
  EXPECT_EQ(ranges.NextHeld(41, 100), 100u);
  EXPECT_TRUE(ranges.Add(20, 30));
  EXPECT_THAT(ranges.intervals(), ElementsAre(Pair(10, 40)));
  EXPECT_TRUE(ranges.Covers(10, 40));
  EXPECT_FALSE(ranges.Covers(10, 41));
}

TEST(Ranges, HoldingsSurviveTheirEncoding) {
  Holdings holdings;
  holdings[3].whole = true;
  holdings[4].files[0].Add(0, 10);
  holdings[4].files[2].Add(5, 10);
  holdings[4].files[2].Add(20, 30);
  const std::string bytes = EncodeHoldings(holdings);
  EXPECT_EQ(DecodeHoldings(AsBytes(bytes)).value(), holdings);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    EXPECT_FALSE(DecodeHoldings(AsBytes(bytes).first(cut))) << cut;
  }
}

class StreamTest : public testing::Test {
 protected:
  StreamTest() {
    images_.push_back(maker_.Make(1, {{"pages-1.img", Noise(2'500'000, 1)},
                                      {"core-2.img", Noise(700, 2)},
                                      {"empty.img", ""},
                                      {"dump.log", "not part of it"},
                                      {"stats-dump", "nor this"}}));
    images_.push_back(maker_.Make(6, {{"pages-1.img", Noise(100'000, 3)}}));
  }

  // Feeds chunks until the bytes or the assembler's patience end.
  static Result<> Feed(Assembler& assembler, std::string_view bytes) {
    std::vector<std::byte> buffer(kMaxPayloadBytes);
    assembler.OnConnected();
    while (!assembler.ended()) {
      XMPI_ASSIGN_OR_RETURN(const Chunk chunk, ReadChunk(TakeFrom(&bytes), buffer));
      XMPI_RETURN_IF_ERROR(assembler.Accept(chunk));
    }
    return {};
  }

  void ExpectWhole(const Assembler& assembler, const MemoryStorage& storage) {
    ASSERT_TRUE(assembler.complete());
    for (const RankImage& image : images_) {
      EXPECT_EQ(assembler.ManifestOf(image.manifest.rank), image.manifest);
    }
    const auto& files = storage.files.at(1);
    EXPECT_EQ(files.size(), 3u);
    EXPECT_EQ(files.at(3), std::pair("pages-1.img", Noise(2'500'000, 1)));
    EXPECT_EQ(files.at(2), std::pair("empty.img", ""));
    EXPECT_EQ(storage.files.at(6).at(1).second, Noise(100'000, 3));
  }

  ImageMaker maker_;
  std::vector<RankImage> images_;
};

TEST_F(StreamTest, ArrivesWhole) {
  MemoryStorage storage;
  Assembler assembler(&storage, {1, 6}, kLimit);
  ASSERT_TRUE(Feed(assembler, StreamOf(images_)));
  ExpectWhole(assembler, storage);
  EXPECT_TRUE(assembler.Holds().at(1).whole);
}

TEST_F(StreamTest, CanBeSentAgainToAnotherTarget) {
  const std::string first = StreamOf(images_);
  EXPECT_EQ(StreamOf(images_), first);
}

TEST_F(StreamTest, GoesOnAfterACutWhereverItWas) {
  const std::string whole = StreamOf(images_);
  for (std::size_t step = 0; step < 40; ++step) {
    const std::size_t cut = whole.size() * step / 40;
    MemoryStorage storage;
    Assembler assembler(&storage, {1, 6}, kLimit);
    EXPECT_FALSE(Feed(assembler, std::string_view(whole).substr(0, cut)));
    EXPECT_FALSE(assembler.complete());
    const std::uint64_t before = assembler.bytes();
    const std::string rest = StreamOf(images_, assembler.Holds());
    ASSERT_TRUE(Feed(assembler, rest)) << "cut at " << cut;
    ExpectWhole(assembler, storage);
    // Nothing was sent that was there already.
    EXPECT_LE(rest.size() + before, whole.size() + 16 * kChunkHeaderBytes);
  }
}

TEST_F(StreamTest, AcceptsAnyOrder) {
  const std::string whole = StreamOf(images_);
  struct Owned {
    ChunkHeader header;
    std::string payload;
  };
  std::vector<Owned> chunks;
  std::vector<std::byte> buffer(kMaxPayloadBytes);
  for (std::string_view rest = whole; !rest.empty();) {
    const Chunk chunk = ReadChunk(TakeFrom(&rest), buffer).value();
    chunks.push_back({chunk.header, std::string(AsText(chunk.payload))});
  }
  MemoryStorage storage;
  Assembler assembler(&storage, {1, 6}, kLimit);
  assembler.OnConnected();
  // Declarations first, then all data backwards: the manifest before the files.
  for (const bool data : {false, true}) {
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const Owned& chunk = chunks[data ? chunks.size() - 1 - i : i];
      if ((chunk.header.kind == ChunkKind::kData) != data) continue;
      if (chunk.header.kind == ChunkKind::kEnd) continue;
      const Result<> taken = assembler.Accept({chunk.header, AsBytes(chunk.payload)});
      ASSERT_TRUE(taken) << taken.error().message;
    }
  }
  ExpectWhole(assembler, storage);
}

class RefusalTest : public StreamTest {
 protected:
  RefusalTest() { assembler_.OnConnected(); }
  Result<> Say(ChunkHeader header, std::string payload) {
    header.length = static_cast<std::uint32_t>(payload.size());
    return assembler_.Accept({header, AsBytes(payload)});
  }
  Result<> Declare(std::uint32_t file, std::string name, std::uint64_t total) {
    return Say({.kind = ChunkKind::kFile, .rank = 1, .file = file, .total = total}, name);
  }
  Result<> Data(std::uint32_t file, std::uint64_t offset, std::string bytes) {
    return Say({.kind = ChunkKind::kData, .rank = 1, .file = file, .offset = offset}, bytes);
  }
  Result<> Promise(const Manifest& manifest, bool rightly = true) {
    const std::string bytes = Encode(manifest);
    Hash128 hash = HashOf(AsBytes(bytes));
    if (!rightly) hash.low ^= 1;
    std::string payload(reinterpret_cast<const char*>(&hash), sizeof(hash));
    XMPI_RETURN_IF_ERROR(
        Say({.kind = ChunkKind::kManifest, .rank = 1, .total = bytes.size()}, payload));
    return Data(0, 0, bytes);
  }
  static Manifest ManifestFor(RankId rank, std::vector<ManifestFile> files) {
    return {.rank = rank,
            .pid = 2,
            .used_pids = {},
            .ties = {},
            .files = std::move(files),
            .note = {},
            .held = {}};
  }

  MemoryStorage storage_;
  Assembler assembler_{&storage_, {1}, 1000};
};

TEST_F(RefusalTest, AnotherStream) {
  std::string said, answer;
  const StreamId other{.slot = 2, .epoch = 3, .migration = 4, .attempt = 6};
  ASSERT_TRUE(SendBegin(AppendTo(&said), {.stream = other}));
  std::string_view in = said;
  const auto begun = ReceiveBegin(TakeFrom(&in), AppendTo(&answer), kStream);
  ASSERT_FALSE(begun);
  EXPECT_THAT(begun.error().message, HasSubstr("attempt 6"));
  std::string_view answers = answer;
  EXPECT_EQ(ReceiveHoldings(TakeFrom(&answers)).error().code, ErrorCode::kRefused);
}

TEST_F(RefusalTest, AConnectionThatDoesNotSayWhatItIs) {
  std::string said, answer;
  ASSERT_TRUE(SendEnd(AppendTo(&said)));
  std::string_view in = said;
  EXPECT_FALSE(ReceiveBegin(TakeFrom(&in), AppendTo(&answer), kStream));
  EXPECT_FALSE(DecodeBegin(AsBytes(EncodeBegin({.stream = kStream, .lane = 3, .lanes = 2}))));
  EXPECT_FALSE(DecodeBegin(AsBytes(EncodeBegin({.stream = kStream, .lane = 1, .lanes = 65}))));
  const Begin begin{.stream = kStream, .lane = 2, .lanes = 2};
  EXPECT_EQ(DecodeBegin(AsBytes(EncodeBegin(begin))).value(), begin);
}

TEST_F(RefusalTest, WhatIsOutOfPlace) {
  EXPECT_FALSE(Say({.kind = ChunkKind::kBegin}, EncodeBegin({.stream = kStream})));
  EXPECT_FALSE(Say({.kind = ChunkKind::kPages, .rank = 1, .file = 2}, "x"));
  EXPECT_FALSE(Say({.kind = ChunkKind::kHeld}, ""));
  EXPECT_FALSE(Say({.kind = ChunkKind::kFile, .rank = 2, .file = 1, .total = 1}, "a"));
  EXPECT_FALSE(Data(1, 0, "not declared"));
  EXPECT_FALSE(Data(0, 0, "not declared"));
  ASSERT_TRUE(Say({.kind = ChunkKind::kEnd}, ""));
  EXPECT_FALSE(Declare(1, "a", 10));
}

TEST_F(RefusalTest, BadDeclarations) {
  EXPECT_FALSE(Declare(0, "a", 10));
  EXPECT_FALSE(Declare(1, "../a", 10));
  EXPECT_FALSE(Declare(1, "/a", 10));
  EXPECT_FALSE(Declare(1, "..", 10));
  EXPECT_FALSE(Declare(1, "a", 1001));
  ASSERT_TRUE(Declare(1, "a", 600));
  ASSERT_TRUE(Declare(1, "a", 600));  // said again, as after a cut
  EXPECT_FALSE(Declare(1, "b", 600));
  EXPECT_FALSE(Declare(1, "a", 601));
  EXPECT_FALSE(Declare(2, "a", 10));
  EXPECT_FALSE(Declare(2, "b", 401));
  EXPECT_FALSE(Declare(2, "b", ~0ull));
  EXPECT_TRUE(Declare(2, "b", 400));
}

TEST_F(RefusalTest, BytesTwiceOrBeyond) {
  ASSERT_TRUE(Declare(1, "a", 100));
  ASSERT_TRUE(Data(1, 10, "0123456789"));
  EXPECT_FALSE(Data(1, 10, "0123456789"));
  EXPECT_FALSE(Data(1, 19, "01"));
  EXPECT_FALSE(Data(1, 5, "012345"));
  EXPECT_FALSE(Data(1, 95, "012345"));
  EXPECT_FALSE(Data(1, ~0ull - 2, "012345"));
  EXPECT_FALSE(Data(1, 50, ""));
  EXPECT_TRUE(Data(1, 90, "0123456789"));
}

TEST_F(RefusalTest, ManyCrumbs) {
  Assembler assembler(&storage_, {1}, 1 << 20);
  assembler.OnConnected();
  const auto say = [&](ChunkHeader header, std::string_view payload) {
    return assembler.Accept({header, AsBytes(payload)});
  };
  ASSERT_TRUE(say({.kind = ChunkKind::kFile, .rank = 1, .file = 1, .total = 1 << 20}, "a"));
  std::size_t taken = 0;
  for (std::uint64_t i = 0; i < 4096; ++i) {
    taken +=
        say({.kind = ChunkKind::kData, .rank = 1, .file = 1, .offset = 2 * i, .length = 1}, "x")
            ? 1
            : 0;
  }
  EXPECT_EQ(taken, kMaxIntervals);
}

TEST_F(RefusalTest, AManifestThatDoesNotFit) {
  const Hash128 right = HashOf(AsBytes("0123456789"));
  struct Case {
    const char* what;
    Manifest manifest;
  };
  const std::vector<Case> cases = {
      {"another rank", ManifestFor(2, {{"a", 10, right}})},
      {"another name", ManifestFor(1, {{"b", 10, right}})},
      {"another length", ManifestFor(1, {{"a", 11, right}})},
      {"another checksum", ManifestFor(1, {{"a", 10, {1, 2}}})},
      {"a file too few", ManifestFor(1, {})},
  };
  for (const Case& test : cases) {
    ASSERT_TRUE(Declare(1, "a", 10)) << test.what;
    ASSERT_TRUE(Data(1, 0, "0123456789")) << test.what;
    EXPECT_FALSE(Promise(test.manifest)) << test.what;
    EXPECT_FALSE(assembler_.complete()) << test.what;
    // It starts from nothing.
    EXPECT_TRUE(assembler_.Holds().at(1).files.empty()) << test.what;
    EXPECT_FALSE(storage_.files.contains(1)) << test.what;
  }
  ASSERT_TRUE(Declare(1, "a", 10));
  ASSERT_TRUE(Data(1, 0, "0123456789"));
  EXPECT_FALSE(Promise(ManifestFor(1, {{"a", 10, right}}), false));
  ASSERT_TRUE(Declare(1, "a", 10));
  ASSERT_TRUE(Data(1, 0, "0123456789"));
  EXPECT_TRUE(Promise(ManifestFor(1, {{"a", 10, right}})));
  EXPECT_TRUE(assembler_.complete());
  EXPECT_FALSE(Declare(2, "b", 1));
}

TEST_F(RefusalTest, WaitsForAFileThatTheManifestPromises) {
  const Hash128 right = HashOf(AsBytes("0123456789"));
  ASSERT_TRUE(Promise(ManifestFor(1, {{"a", 10, right}, {"e", 0, HashOf({})}})));
  ASSERT_TRUE(Declare(1, "a", 10));
  ASSERT_TRUE(Data(1, 0, "0123456789"));
  EXPECT_FALSE(assembler_.complete());
  ASSERT_TRUE(Declare(2, "e", 0));
  EXPECT_TRUE(assembler_.complete());
}

TEST_F(StreamTest, ReceiveAndSendSpeakTogether) {
  // Both halves against recorded other halves: the wire carries what each expects.
  MemoryStorage storage;
  Assembler assembler(&storage, {1, 6}, kLimit);
  const std::string stream = StreamOf(images_);
  std::string_view in = stream;
  std::string answer;
  ASSERT_TRUE(ReceiveImages(TakeFrom(&in), AppendTo(&answer), &assembler));
  std::string_view answers = answer;
  EXPECT_EQ(ReceiveHoldings(TakeFrom(&answers)).value().size(), 2u);
  EXPECT_TRUE(ReceiveVerdict(TakeFrom(&answers)));
  EXPECT_TRUE(answers.empty());

  Assembler wary(&storage, {1}, kLimit);
  in = stream;
  answer.clear();
  EXPECT_FALSE(ReceiveImages(TakeFrom(&in), AppendTo(&answer), &wary));
  answers = answer;
  ASSERT_TRUE(ReceiveHoldings(TakeFrom(&answers)));
  const Result<> verdict = ReceiveVerdict(TakeFrom(&answers));
  ASSERT_FALSE(verdict);
  EXPECT_EQ(verdict.error().code, ErrorCode::kRefused);
  EXPECT_THAT(verdict.error().message, HasSubstr("rank 6"));
}

TEST_F(StreamTest, DirectoriesHoldTheSameFiles) {
  DirectoryStorage storage(
      [this](RankId) -> Result<Fd> { return std::move(maker_.Make(0, {}).directory); });
  Assembler assembler(&storage, {1, 6}, kLimit);
  ASSERT_TRUE(Feed(assembler, StreamOf(images_)));
  ASSERT_TRUE(assembler.complete());
  RankImage copy{std::move(storage.Open(1).value()), assembler.ManifestOf(1)};
  EXPECT_TRUE(storage.Open(1));
  EXPECT_FALSE(storage.Open(2));
  // An image that arrived is as good a source as the first.
  std::vector<RankImage> again;
  again.push_back(std::move(copy));
  std::vector<RankImage> original;
  original.push_back(std::move(images_[0]));
  EXPECT_EQ(StreamOf(again), StreamOf(original));
}

}  // namespace
}  // namespace xmpi::image
