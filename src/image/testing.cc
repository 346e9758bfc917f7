#include "image/testing.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <format>

#include "base/check.h"
#include "image/source.h"

namespace xmpi::image {

WriteAll AppendTo(std::string* out) {
  return [out](std::span<const std::byte> bytes) -> Result<> {
    out->append(AsText(bytes));
    return {};
  };
}

ReadAll TakeFrom(std::string_view* in) {
  return [in](std::span<std::byte> bytes) -> Result<> {
    if (bytes.size() > in->size()) return Fail(ErrorCode::kUnreachable, "the connection closed");
    std::ranges::copy(AsBytes(in->substr(0, bytes.size())), bytes.begin());
    in->remove_prefix(bytes.size());
    return {};
  };
}

ImageMaker::ImageMaker() : folder_("/tmp/xmpi-image-XXXXXX") {
  XMPI_CHECK(mkdtemp(folder_.data()) != nullptr);
}

ImageMaker::~ImageMaker() {
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
}

RankImage ImageMaker::Make(RankId rank,
                           const std::vector<std::pair<std::string, std::string>>& files) {
  const std::string path = std::format("{}/{}", folder_, made_++);
  XMPI_CHECK(std::filesystem::create_directory(path));
  RankImage image;
  image.manifest.rank = rank;
  image.manifest.pid = 2;
  image.manifest.used_pids = {2, 3};
  image.manifest.ties = {{TieKind::kStdin, true, 77, "unread"}};
  image.directory = Fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (const auto& [name, content] : files) {
    const Fd file(openat(image.directory.get(), name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    XMPI_CHECK(write(file.get(), content.data(), content.size()) == std::ssize(content));
  }
  image.manifest.files = ListImageFiles(image.directory).value();
  return image;
}

std::string StreamOf(std::vector<RankImage>& images, const Holdings& holdings) {
  std::string bytes;
  const WriteAll write = AppendTo(&bytes);
  for (RankImage& image : images) {
    const auto held = holdings.find(image.manifest.rank);
    const RankHoldings none;
    XMPI_CHECK(SendImage(write, &image, held == holdings.end() ? none : held->second, nullptr));
  }
  XMPI_CHECK(SendEnd(write));
  return bytes;
}

std::string StreamOf(const StreamId& id, std::vector<RankImage>& images, const Holdings& holdings) {
  std::string bytes;
  XMPI_CHECK(SendBegin(AppendTo(&bytes), {.stream = id}));
  return bytes + StreamOf(images, holdings);
}

Result<> ReceiveStream(const ReadAll& read, const WriteAll& write, const StreamId& expected,
                       Assembler* assembler) {
  XMPI_RETURN_IF_ERROR(ReceiveBegin(read, write, expected));
  return ReceiveImages(read, write, assembler);
}

}  // namespace xmpi::image
