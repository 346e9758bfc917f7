// DirectoryStorage: a Storage that keeps every rank's files in a directory of its own, made by the
// caller's function (memory-backed in the proxy). Owns the directories; Open shares one.
#pragma once

#include <functional>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "image/assembler.h"

namespace xmpi::image {

class DirectoryStorage : public Storage {
 public:
  using MakeDirectory = std::function<Result<Fd>(RankId)>;
  explicit DirectoryStorage(MakeDirectory make) : make_(std::move(make)) {}

  Result<> Create(RankId rank, std::uint32_t file, const std::string& name,
                  std::uint64_t length) override;
  Result<> Write(RankId rank, std::uint32_t file, std::uint64_t offset,
                 std::span<const std::byte> bytes) override;
  Result<> Read(RankId rank, std::uint32_t file, std::uint64_t offset,
                std::span<std::byte> bytes) override;
  void Drop(RankId rank) override { ranks_.erase(rank); }

  // The directory with the rank's files; they live as long as any descriptor of it.
  Result<Fd> Open(RankId rank) const;

 private:
  struct Rank {
    Fd directory;
    std::map<std::uint32_t, Fd> files;
  };
  Result<int> FileFd(RankId rank, std::uint32_t file);

  MakeDirectory make_;
  std::map<RankId, Rank> ranks_;
};

}  // namespace xmpi::image
