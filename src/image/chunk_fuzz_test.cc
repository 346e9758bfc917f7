// Replays the fuzz target's corpus in every build, so that what was found once stays found. With
// XMPI_WRITE_CORPUS set it writes the seeds anew: a whole stream, and its parts.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "image/testing.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace xmpi::image {
namespace {

const std::filesystem::path kCorpus = XMPI_IMAGE_CORPUS;

TEST(ImageFuzz, CorpusHolds) {
  int replayed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kCorpus)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    ++replayed;
  }
  EXPECT_GE(replayed, 2);
}

TEST(ImageFuzz, SeedsAreOfThisFormat) {
  ImageMaker maker;
  std::vector<RankImage> images;
  images.push_back(maker.Make(0, {{"a.img", "aaaa"}, {"b.img", "b"}}));
  images.push_back(maker.Make(1, {{"c.img", "cc"}}));
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
