// The fuzz targets' seeds are of today's format: a whole stream, its parts, and pages. With
// XMPI_WRITE_CORPUS set they are written anew.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/bytes.h"
#include "image/page_chunk.h"
#include "image/page_testing.h"
#include "image/testing.h"

namespace xmpi::image {
namespace {

void ExpectSeed(const std::filesystem::path& name, const std::string& bytes) {
  const auto path = XMPI_IMAGE_TESTDATA / name;
  if (std::getenv("XMPI_WRITE_CORPUS") != nullptr) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
  }
  std::ifstream file(path, std::ios::binary);
  const std::string stored((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(stored, bytes) << path;
}

TEST(ImageCorpus, SeedsAreOfThisFormat) {
  ImageMaker maker;
  std::vector<RankImage> images;
  images.push_back(maker.Make(0, {{"a.img", "aaaa"}, {"b.img", "b"}}));
  images.push_back(maker.Make(1, {{"c.img", "cc"}}));
  images[0].manifest.held = {
      {.rank = 0,
       .path = "/log",
       .use = FileUse::kWritten,
       .file_system = "ext4",
       .kernel = "boot",
       .mode = 0100640,
       .state = {.inode = 1, .size = 4, .modified_ns = 2, .changed_ns = 3},
       .earlier = {{.inode = 9, .size = 1, .modified_ns = 1, .changed_ns = 1}},
       .content = "a.img"}};
  const std::string stream =
      StreamOf({.slot = 1, .epoch = 1, .migration = 1, .attempt = 1}, images);
  const std::string manifest = Encode(images[0].manifest);
  ExpectSeed("corpus/stream", stream);
  ExpectSeed("corpus/manifest", manifest);
}

// For the target of pages: a byte for lane, rank and PID before each payload and its length.
TEST(ImageCorpus, PagesAreOfThisFormat) {
  for (const auto& [name, encoding] :
       {std::pair{"plain", Encoding::kNone}, {"lz4", Encoding::kLz4}, {"zstd", Encoding::kZstd}}) {
    Compressor compressor(encoding);
    PageChunkWriter writer;
    std::ranges::copy(PageOf(1), writer.Room().begin());
    writer.AddData(4 * kRegionBytes, writer.Room().data());
    writer.AddZero(4 * kRegionBytes + kPageBytes);
    writer.AddCopy(6 * kRegionBytes, {0, 1, 4 * kRegionBytes});
    ByteWriter out;
    out.Put(std::uint8_t{0b01000});
    out.PutString(AsText(writer.Encode(&compressor)));
    ExpectSeed(std::filesystem::path("pages") / name, out.bytes());
  }
}

}  // namespace
}  // namespace xmpi::image
