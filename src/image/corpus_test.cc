// The fuzz target's seeds are of today's format: a whole stream, and its parts. With
// XMPI_WRITE_CORPUS set they are written anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "image/testing.h"

namespace xmpi::image {
namespace {

const std::filesystem::path kCorpus = XMPI_IMAGE_CORPUS;

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
  for (const auto& [name, bytes] : {std::pair{"stream", stream}, {"manifest", manifest}}) {
    const auto path = kCorpus / name;
    if (std::getenv("XMPI_WRITE_CORPUS") != nullptr) {
      std::ofstream(path, std::ios::binary) << bytes;
    }
    std::ifstream file(path, std::ios::binary);
    const std::string stored((std::istreambuf_iterator<char>(file)), {});
    EXPECT_EQ(stored, bytes) << path;
  }
}

}  // namespace
}  // namespace xmpi::image
