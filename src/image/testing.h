// For tests of the image stream: a storage in memory, and images as files in a memory directory.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "image/assembler.h"

namespace xmpi::image {

class MemoryStorage : public Storage {
 public:
  Result<> Create(RankId rank, std::uint32_t file, const std::string& name,
                  std::uint64_t length) override {
    files[rank][file] = {name, std::string(length, '\0')};
    return {};
  }
  Result<> Write(RankId rank, std::uint32_t file, std::uint64_t offset,
                 std::span<const std::byte> bytes) override {
    std::memcpy(files.at(rank).at(file).second.data() + offset, bytes.data(), bytes.size());
    return {};
  }
  Result<> Read(RankId rank, std::uint32_t file, std::uint64_t offset,
                std::span<std::byte> bytes) override {
    std::memcpy(bytes.data(), files.at(rank).at(file).second.data() + offset, bytes.size());
    return {};
  }
  void Drop(RankId rank) override { files.erase(rank); }

  std::map<RankId, std::map<std::uint32_t, std::pair<std::string, std::string>>> files;
};

// A stream as bytes on a connection, and the chunks in it.
WriteAll AppendTo(std::string* out);
ReadAll TakeFrom(std::string_view* in);

// Makes images in a folder under /tmp that goes with it.
class ImageMaker {
 public:
  ImageMaker();
  ~ImageMaker();
  RankImage Make(RankId rank, const std::vector<std::pair<std::string, std::string>>& files);

 private:
  std::string folder_;
  int made_ = 0;
};

// All that a source sends on one control connection for these images, but for kBegin and, in the
// second, with it.
std::string StreamOf(std::vector<RankImage>& images, const Holdings& holdings = {});
std::string StreamOf(const StreamId& id, std::vector<RankImage>& images,
                     const Holdings& holdings = {});

// What a target does on a control connection.
Result<> ReceiveStream(const ReadAll& read, const WriteAll& write, const StreamId& expected,
                       Assembler* assembler);

}  // namespace xmpi::image
