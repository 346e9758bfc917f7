// Whatever happens to the bytes of a stream on the way, a damaged image is never called whole.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "image/assembler.h"
#include "image/chunk.h"
#include "image/source.h"
#include "image/testing.h"

namespace xmpi::image {
namespace {

constexpr StreamId kStream{.slot = 1, .epoch = 1, .migration = 1, .attempt = 1};

// One stream for all runs: two ranks, three files, some 20 kB.
const std::string& Stream() {
  static const std::string* stream = [] {
    ImageMaker maker;
    std::vector<RankImage> images;
    images.push_back(maker.Make(0, {{"a.img", std::string(9000, 'a')}, {"b.img", "bb"}}));
    images.push_back(maker.Make(1, {{"c.img", std::string(9000, 'c')}}));
    return new std::string(StreamOf(kStream, images));
  }();
  return *stream;
}

struct Target {
  MemoryStorage storage;
  Assembler assembler{&storage, {0, 1}, 1 << 20};

  bool Take(std::string_view bytes) {
    std::string answer;
    return ReceiveStream(TakeFrom(&bytes), AppendTo(&answer), kStream, &assembler).has_value();
  }
  bool IsRight() const {
    return storage.files.at(0).at(1).second == std::string(9000, 'a') &&
           storage.files.at(0).at(2).second == "bb" &&
           storage.files.at(1).at(1).second == std::string(9000, 'c');
  }
};

TEST(Stream, IsWholeWhenNothingHappens) {
  Target target;
  EXPECT_TRUE(target.Take(Stream()));
  EXPECT_TRUE(target.IsRight());
}

RC_GTEST_PROP(Stream, CutAnywhereIsNeverWhole, ()) {
  const auto at = *rc::gen::inRange<std::size_t>(0, Stream().size());
  Target target;
  RC_ASSERT(!target.Take(std::string_view(Stream()).substr(0, at)));
  // All but the closing chunk may have come: then it is whole, and right.
  RC_ASSERT((!target.assembler.complete() || target.IsRight()));
}

RC_GTEST_PROP(Stream, FlippedBitsAreNeverWhole, ()) {
  std::string bytes = Stream();
  const auto flips = *rc::gen::inRange(1, 5);
  for (int i = 0; i < flips; ++i) {
    const auto bit = *rc::gen::inRange<std::size_t>(0, bytes.size() * 8);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  }
  RC_PRE(bytes != Stream());
  Target target;
  RC_ASSERT(!target.Take(bytes));
  RC_ASSERT((!target.assembler.complete() || target.IsRight()));
}

RC_GTEST_PROP(Stream, MovedBytesAreNeverWholeUnlessRight, ()) {
  std::string bytes = Stream();
  const auto from = *rc::gen::inRange<std::size_t>(0, bytes.size());
  const auto size = *rc::gen::inRange<std::size_t>(1, 3000);
  const std::string piece = bytes.substr(from, size);
  bytes.erase(from, size);
  bytes.insert(*rc::gen::inRange<std::size_t>(0, bytes.size() + 1), piece);
  Target target;
  const bool taken = target.Take(bytes);
  RC_ASSERT((!taken || target.IsRight()));
  RC_ASSERT((!target.assembler.complete() || target.IsRight()));
}

RC_GTEST_PROP(Stream, CutsAndResumptionsEndWhole, ()) {
  ImageMaker maker;
  std::vector<RankImage> images;
  images.push_back(maker.Make(0, {{"a.img", std::string(9000, 'a')}, {"b.img", "bb"}}));
  images.push_back(maker.Make(1, {{"c.img", std::string(9000, 'c')}}));
  Target target;
  const auto cuts = *rc::gen::container<std::vector<std::size_t>>(
      *rc::gen::inRange<std::size_t>(0, 6), rc::gen::inRange<std::size_t>(0, 22000));
  for (const std::size_t cut : cuts) {
    const std::string bytes = StreamOf(kStream, images, target.assembler.Holds());
    if (cut < bytes.size()) target.Take(std::string_view(bytes).substr(0, cut));
  }
  RC_ASSERT(target.Take(StreamOf(kStream, images, target.assembler.Holds())));
  RC_ASSERT(target.IsRight());
}

}  // namespace
}  // namespace xmpi::image
