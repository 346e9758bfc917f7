// Assembler: the target's side of the image stream. It takes chunks in any order, puts their bytes
// into a Storage, and says complete() only when every rank of the slot has its manifest, every
// file in it is whole, with the right length and checksum, and so is the memory in it, which came
// by the lanes before it. It never believes a number it was sent: duplicates, overlaps, foreign
// ranks, names that are paths and totals beyond the limit are kProtocol errors, after which the
// connection is to be closed. What was accepted before stays, so that a new connection goes on from
// Holds(); a rank whose image does not match its manifest is dropped whole and is kUnreachable:
// worth another connection. No IO of its own, no clock, not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "image/chunk.h"
#include "image/manifest.h"
#include "image/ranges.h"

namespace xmpi::image {

// Where the files of the images go. Files are numbered from 1 within a rank.
class Storage {
 public:
  virtual ~Storage() = default;
  virtual Result<> Create(RankId rank, std::uint32_t file, const std::string& name,
                          std::uint64_t length) = 0;
  virtual Result<> Write(RankId rank, std::uint32_t file, std::uint64_t offset,
                         std::span<const std::byte> bytes) = 0;
  virtual Result<> Read(RankId rank, std::uint32_t file, std::uint64_t offset,
                        std::span<std::byte> bytes) = 0;
  // All of the rank's files; they were damaged.
  virtual void Drop(RankId rank) = 0;
};

class PageStore;

class Assembler {
 public:
  // `limit_bytes` bounds the sum of all files. Without `pages` an image must have no memory outside
  // of its files.
  Assembler(Storage* storage, std::vector<RankId> ranks, std::uint64_t limit_bytes,
            PageStore* pages = nullptr);
  ~Assembler();

  // Before the first chunk of each connection.
  void OnConnected() { ended_ = false; }
  Result<> Accept(const Chunk& chunk);

  bool complete() const { return complete_ranks_ == states_.size(); }
  // Whether kEnd came on this connection: nothing more will come on it.
  bool ended() const { return ended_; }
  std::uint64_t bytes() const { return bytes_; }
  // What the source says that it has sent, on all connections.
  std::uint64_t sent_bytes() const { return sent_bytes_; }

  // What the source need not send again; kept by rank and file. Whole ranks have a flag.
  Holdings Holds() const;
  // Only once the rank is complete.
  const Manifest& ManifestOf(RankId rank) const;

 private:
  struct File;
  struct RankState;

  Result<> Declare(RankState& state, const Chunk& chunk);
  Result<> DeclareManifest(RankState& state, const Chunk& chunk);
  Result<> Data(RankState& state, const Chunk& chunk);
  Result<> StoreManifestBytes(RankState& state, const Chunk& chunk);
  Result<> StoreFileBytes(RankState& state, const Chunk& chunk);
  Result<> OpenManifest(RankId rank, RankState& state);
  Result<> Finish(RankId rank, RankState& state);
  Result<> CheckFiles(RankId rank, RankState& state);
  Result<Hash128> HashOf(RankId rank, std::uint32_t number, File& file);
  std::unexpected<Error> Damaged(RankId rank, RankState& state, std::string message);

  Storage* storage_;
  std::uint64_t limit_bytes_;
  PageStore* pages_;
  std::uint64_t declared_bytes_ = 0;
  std::uint64_t bytes_ = 0;
  bool ended_ = false;
  std::uint64_t sent_bytes_ = 0;
  std::size_t complete_ranks_ = 0;
  std::map<RankId, std::unique_ptr<RankState>> states_;
};

}  // namespace xmpi::image
