// The payload of a chunk of pages, its compression, and the arithmetic and digests of pages.
#include "image/page_chunk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "base/bytes.h"
#include "image/compression.h"
#include "image/hash.h"
#include "image/page_testing.h"

namespace xmpi::image {
namespace {

using testing::ElementsAre;

constexpr std::uint64_t kBase = 7 * kRegionBytes;

std::uint64_t At(std::uint64_t page) { return kBase + page * kPageBytes; }

void PutPage(PageChunkWriter& writer, std::uint64_t page, std::uint64_t seed) {
  std::ranges::copy(PageOf(seed), writer.Room().begin());
  writer.AddData(At(page), writer.Room().data());
}

Result<PagePayload> Decode(std::span<const std::byte> payload) {
  static std::vector<std::byte> buffer(kMaxPageDataBytes);
  return DecodePages(payload, buffer);
}

TEST(PageChunk, SurvivesItsEncoding) {
  for (const Encoding encoding : {Encoding::kNone, Encoding::kLz4, Encoding::kZstd}) {
    Compressor compressor(encoding);
    PageChunkWriter writer;
    PutPage(writer, 0, 1);
    PutPage(writer, 1, 3);
    writer.AddZero(At(2));
    writer.AddCopy(At(3), {1, 20, At(510)});
    writer.AddCopy(At(4), {1, 20, At(511)});
    writer.AddCopy(At(5), {1, 20, At(512)});  // another region
    PutPage(writer, 511, 5);
    PutPage(writer, 512, 7);
    const auto payload = writer.Encode(&compressor);
    EXPECT_TRUE(encoding == Encoding::kNone || payload.size() < 2 * kPageBytes);
    const auto pages = Decode(payload);
    ASSERT_TRUE(pages) << pages.error().message;
    EXPECT_THAT(pages->entries,
                ElementsAre(PageEntry{PageKind::kData, {At(0), 2}, {}},
                            PageEntry{PageKind::kZero, {At(2), 1}, {}},
                            PageEntry{PageKind::kCopy, {At(3), 2}, {1, 20, At(510)}},
                            PageEntry{PageKind::kCopy, {At(5), 1}, {1, 20, At(512)}},
                            PageEntry{PageKind::kData, {At(511), 1}, {}},
                            PageEntry{PageKind::kData, {At(512), 1}, {}}));
    ASSERT_EQ(pages->data.size(), 4 * kPageBytes);
    EXPECT_TRUE(std::ranges::equal(pages->data.last(kPageBytes), PageOf(7)));
  }
}

TEST(PageChunk, IsFullBeforeItsPayloadIsTooLarge) {
  PageChunkWriter writer;
  std::uint64_t page = 0;
  for (; !writer.IsFull(); page += 2) PutPage(writer, page, 2 * page + 2);
  Compressor compressor;
  EXPECT_LE(writer.Encode(&compressor).size(), kMaxPayloadBytes);
  EXPECT_GT(writer.data_bytes(), kMaxPageDataBytes - 16 * kPageBytes);
  writer.Clear();
  for (page = 0; !writer.IsFull(); page += 2) writer.AddCopy(At(page), {0, 1, At(9)});
  // As many more may come of one read.
  for (std::size_t i = 0; i < kMaxPageDataBytes / kPageBytes; ++i, page += 2)
    writer.AddCopy(At(page), {0, 1, At(9)});
  EXPECT_TRUE(Decode(writer.Encode(&compressor)));
}

// A payload as a liar would write it.
struct Lie {
  Encoding encoding = Encoding::kNone;
  std::uint32_t raw_bytes = 0;
  std::vector<PageEntry> entries;
  std::string data{};

  bool IsBelieved() const {
    ByteWriter out;
    out.Put(static_cast<std::uint8_t>(encoding));
    out.Put(raw_bytes);
    out.Put(static_cast<std::uint32_t>(entries.size()));
    for (const PageEntry& entry : entries) {
      out.Put(entry.run.address);
      out.Put(static_cast<std::uint32_t>(entry.run.pages));
      out.Put(static_cast<std::uint8_t>(entry.kind));
      if (entry.kind != PageKind::kCopy) continue;
      out.Put(entry.from.rank);
      out.Put(static_cast<std::uint32_t>(entry.from.pid));
      out.Put(entry.from.address);
    }
    return Decode(AsBytes(out.bytes() + data)).has_value();
  }
};

TEST(PageChunk, LiesAreNotBelieved) {
  const std::string page(kPageBytes, 'x');
  const auto data = [](std::uint64_t address, std::uint64_t pages) {
    return PageEntry{PageKind::kData, {address, pages}, {}};
  };
  const auto zero = [](std::uint64_t address, std::uint64_t pages) {
    return PageEntry{PageKind::kZero, {address, pages}, {}};
  };
  const auto copy = [](std::uint64_t address, PageOrigin from) {
    return PageEntry{PageKind::kCopy, {address, 2}, from};
  };
  EXPECT_TRUE(
      (Lie{.raw_bytes = kPageBytes, .entries = {data(At(0), 1)}, .data = page}.IsBelieved()));
  EXPECT_TRUE((Lie{.entries = {zero(At(0), 512), copy(At(512), {3, 1, At(0)})}}.IsBelieved()));
  const std::vector<Lie> lies = {
      {.entries = {}},
      {.entries = {zero(At(0) + 1, 1)}},                                     // not aligned
      {.entries = {zero(At(0), 0)}},                                         // nothing
      {.entries = {zero(At(0), 513)}},                                       // two regions
      {.entries = {zero(At(511), 2)}},                                       // two regions
      {.entries = {zero(kAddressLimit, 1)}},                                 // out of reach
      {.entries = {zero(~std::uint64_t{0} - kPageBytes + 1, 1)}},            // overflow
      {.entries = {zero(At(1), 2), zero(At(2), 1)}},                         // overlap
      {.entries = {zero(At(3), 1), zero(At(2), 1)}},                         // backwards
      {.entries = {copy(At(0), {1, 0, At(9)})}},                             // no process
      {.entries = {copy(At(0), {1, 1, At(9) + 8})}},                         // not aligned
      {.entries = {copy(At(0), {1, 1, At(511)})}},                           // from two regions
      {.entries = {{static_cast<PageKind>(9), {At(0), 1}, {}}}},             // no kind
      {.raw_bytes = kPageBytes, .entries = {data(At(0), 1)}},                // no data
      {.raw_bytes = kPageBytes, .entries = {zero(At(0), 1)}, .data = page},  // no entry for it
      {.raw_bytes = kPageBytes, .entries = {data(At(0), 2)}, .data = page},  // not enough
      {.raw_bytes = kPageBytes, .entries = {data(At(0), 1)}, .data = page + "x"},
      {.encoding = static_cast<Encoding>(7),
       .raw_bytes = kPageBytes,
       .entries = {data(At(0), 1)},
       .data = page},
  };
  for (std::size_t i = 0; i < lies.size(); ++i) EXPECT_FALSE(lies[i].IsBelieved()) << i;
}

TEST(PageChunk, ABombIsNotLoaded) {
  // Highly compressed data of more, or of less, than the table speaks of.
  for (const Encoding encoding : {Encoding::kLz4, Encoding::kZstd}) {
    Compressor compressor(encoding);
    for (const std::size_t pages : {1u, 3u, 512u}) {
      const std::vector<std::byte> raw(pages * kPageBytes);
      std::vector<std::byte> out(raw.size());
      const auto encoded = compressor.Encode(raw, out);
      ASSERT_EQ(encoded.encoding, encoding);
      const std::string data(AsText(std::span(out).first(encoded.bytes)));
      const PageEntry two{PageKind::kData, {At(0), 2}, {}};
      EXPECT_FALSE(
          (Lie{.encoding = encoding, .raw_bytes = 2 * kPageBytes, .entries = {two}, .data = data}
               .IsBelieved()));
    }
    // And more than a chunk may hold, truly said.
    std::vector<PageEntry> entries;
    for (std::uint64_t i = 0; i < 2; ++i)
      entries.push_back({PageKind::kData, {At(512 * i), 512}, {}});
    EXPECT_FALSE((Lie{.encoding = encoding, .raw_bytes = 1024 * kPageBytes, .entries = entries}
                      .IsBelieved()));
  }
}

RC_GTEST_PROP(PageChunk, AnyBytesAreDecodedOrRefused, (const std::vector<std::uint8_t>& bytes)) {
  const auto pages = Decode(std::as_bytes(std::span(bytes)));
  RC_ASSERT(!pages || pages->data.size() % kPageBytes == 0);
}

TEST(Compression, IsChosenWhereItPays) {
  const Trial lz4{.ratio = 0.5, .bytes_per_second = 500e6};
  const Trial zstd{.ratio = 0.3, .bytes_per_second = 200e6};
  EXPECT_EQ(Choose(5e9, lz4, zstd), Encoding::kNone);
  EXPECT_EQ(Choose(600e6, lz4, zstd), Encoding::kNone);
  EXPECT_EQ(Choose(120e6, lz4, {}), Encoding::kLz4);
  EXPECT_EQ(Choose(120e6, lz4, zstd), Encoding::kLz4);
  EXPECT_EQ(Choose(10e6, lz4, zstd), Encoding::kZstd);
  EXPECT_EQ(Choose(10e6, {}, {}), Encoding::kNone);
  // What does not compress is never worth it, on the slowest link.
  EXPECT_EQ(Choose(1e6, {.ratio = 1, .bytes_per_second = 5e9}, {}), Encoding::kNone);
  EXPECT_EQ(Choose(1e6, {.ratio = 0.95, .bytes_per_second = 5e9}, {}), Encoding::kNone);
  EXPECT_EQ(Choose(0, lz4, zstd), Encoding::kNone);
}

TEST(Compression, FollowsTheLink) {
  std::vector<std::byte> raw;
  for (std::uint64_t i = 0; i < 100; ++i)
    std::ranges::copy(PageOf(2 * i + 1), std::back_inserter(raw));
  std::vector<std::byte> out(raw.size());
  Compressor compressor;
  EXPECT_EQ(compressor.Encode(raw, out).encoding, Encoding::kNone);  // nothing is known yet
  for (int i = 0; i < 60; ++i) {
    compressor.Encode(raw, out);
    compressor.OnWritten(1 << 20, std::chrono::seconds(1));
  }
  EXPECT_NE(compressor.Encode(raw, out).encoding, Encoding::kNone);
  for (int i = 0; i < 200; ++i) {
    compressor.Encode(raw, out);
    compressor.OnWritten(1 << 20, std::chrono::nanoseconds(1));
  }
  EXPECT_EQ(compressor.Encode(raw, out).encoding, Encoding::kNone);
}

TEST(PageHashes, RunsAreJudged) {
  EXPECT_TRUE(AreOrdered({}));
  EXPECT_TRUE(AreOrdered(std::vector<PageRun>{{0, 1}, {kPageBytes, 1}, {At(0), 5}}));
  EXPECT_FALSE(AreOrdered(std::vector<PageRun>{{0, 2}, {kPageBytes, 1}}));
  EXPECT_FALSE(AreOrdered(std::vector<PageRun>{{At(1), 1}, {At(0), 1}}));
  EXPECT_FALSE(AreOrdered(std::vector<PageRun>{{At(0), 0}}));
  EXPECT_FALSE(AreOrdered(std::vector<PageRun>{{At(0) + 1, 1}}));
  EXPECT_FALSE(AreOrdered(std::vector<PageRun>{{kAddressLimit - kPageBytes, 2}}));
  EXPECT_FALSE(AreOrdered(std::vector<PageRun>{{kPageBytes, ~std::uint64_t{0}}}));
}

TEST(PageHashes, ARunIsCutAtRegions) {
  PageRun rest{At(510), 600};
  EXPECT_EQ(TakePiece(&rest), (PageRun{At(510), 2}));
  EXPECT_EQ(TakePiece(&rest, 100), (PageRun{At(512), 100}));
  EXPECT_EQ(TakePiece(&rest), (PageRun{At(612), 412}));
  EXPECT_EQ(TakePiece(&rest), (PageRun{At(1024), 86}));
  EXPECT_EQ(rest.pages, 0u);
}

TEST(PageHashes, TheDigestIsOfEveryPageAndItsPlace) {
  PageHashes hashes;
  for (std::size_t i = 0; i < 4; ++i) hashes.Set(i, HashOf(PageOf(i)));
  const auto digest = [&](std::vector<PageRun> runs) {
    return Digest(runs, [&](std::uint64_t region) -> const PageHashes* {
      return region == RegionOf(kBase) ? &hashes : nullptr;
    });
  };
  const auto whole = digest({{At(0), 4}});
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole, digest({{At(0), 1}, {At(1), 3}}));
  EXPECT_NE(whole, digest({{At(0), 3}}));
  EXPECT_NE(digest({{At(0), 1}}), digest({{At(1), 1}}));
  EXPECT_FALSE(digest({{At(0), 5}}));
  EXPECT_FALSE(digest({{At(512), 1}}));
  hashes.Set(3, HashOf(PageOf(9)));
  EXPECT_NE(whole, digest({{At(0), 4}}));
}

}  // namespace
}  // namespace xmpi::image
