// PageLane: the source's end of one lane. It knows what the target holds of the regions that belong
// to the lane, as a hash per page, and sends only what differs from that, however often it is
// asked: rounds while the rank runs, and one when it is stopped. What it has noted is true of a
// target that has taken in every chunk so far; a connection that breaks makes it forget the regions
// of those that did not arrive. Used by one thread at a time; no connection of its own.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "image/chunk.h"
#include "image/compression.h"
#include "image/page_chunk.h"
#include "image/page_hashes.h"
#include "image/pages.h"

namespace xmpi::image {

// What one pass over pages came to.
struct PassStats {
  std::uint64_t read = 0;  // pages; each is one of the next four
  std::uint64_t equal = 0;
  std::uint64_t zero = 0;
  std::uint64_t copied = 0;
  std::uint64_t sent = 0;
  std::uint64_t unreadable = 0;  // pages that were not there any more
  std::uint64_t raw_bytes = 0;   // of the pages sent
  std::uint64_t wire_bytes = 0;  // of all chunks
  std::chrono::nanoseconds reading{0};
  std::chrono::nanoseconds hashing{0};
  std::chrono::nanoseconds compressing{0};
  std::chrono::nanoseconds writing{0};

  PassStats& operator+=(const PassStats& other);
};

// Called before so many bytes are read. It may block, to go slower, or fail, to call the pass off.
using Pace = std::function<Result<>(std::size_t bytes)>;

class PageLane {
 public:
  // Of `lanes` lanes, from 1. With `encoding` there is no choosing of another.
  PageLane(unsigned lane, unsigned lanes, std::optional<Encoding> encoding = {});

  unsigned lane() const { return lane_; }

  // On each connection, with what the target said to kBegin.
  Result<> OnConnected(std::uint64_t accepted);

  // One pass over those pages of the runs that belong to this lane; the runs are ordered. After an
  // error the next pass sends again what this one may not have sent.
  Result<PassStats> Send(RankId rank, pid_t pid, PageSource& source, std::span<const PageRun> runs,
                         const WriteAll& write, const Pace& pace = {});
  // Returns once the target has taken in all that was sent: before what rests on it goes another
  // way.
  Result<> Confirm(const ReadAll& read, const WriteAll& write) const;

  // What the target holds of a region that is this lane's, or nullptr. Valid until the next pass.
  const PageHashes* Find(RankId rank, pid_t pid, std::uint64_t region) const;

 private:
  struct Region {
    PageHashes hashes;
    std::uint64_t last_chunk = 0;  // that had a page of it
  };
  struct Task {
    RankId rank = 0;
    pid_t pid = 0;
    std::unordered_map<std::uint64_t, std::unique_ptr<Region>> regions;
  };
  // A page that was sent lately, to be found by its hash. It may hold something else by now.
  struct Recent {
    const Task* task = nullptr;
    std::uint64_t address = 0;
    std::uint64_t hash_high = 0;
  };
  struct Pass;

  Result<> SendPiece(Pass& pass, PageRun piece);
  Result<> SendReadable(Pass& pass, PageRun* piece);
  void Take(Pass& pass, const PageRun& run, const std::byte* bytes);
  void TakePage(Pass& pass, Region& region, std::uint64_t address, const std::byte* page,
                const Hash128& hash);
  Result<> Flush(Pass& pass);
  void ForgetSince(std::uint64_t chunk);
  Task& TaskOf(RankId rank, pid_t pid);
  Region& RegionAt(Task& task, std::uint64_t address);
  Recent& RecentOf(const Hash128& hash);
  bool Holds(const Recent& recent, const Hash128& hash) const;

  unsigned lane_;
  unsigned lanes_;
  Compressor compressor_;
  PageChunkWriter writer_;
  std::uint64_t next_chunk_ = 0;
  std::map<std::pair<RankId, pid_t>, std::unique_ptr<Task>> tasks_;
  std::vector<Recent> recent_;  // by a part of the hash; newer ones take older ones' places
  std::vector<Hash128> hashes_;
};

// The answer of the target to kBegin on a lane, or to kSync: how many chunks it has taken in.
Result<std::uint64_t> ReceiveAccepted(const ReadAll& read);

// The digest of a process's pages as the target holds them if it holds what all lanes, in order,
// have sent; nothing when some were never sent.
std::optional<Hash128> DigestOf(std::span<const std::unique_ptr<PageLane>> lanes, RankId rank,
                                pid_t pid, std::span<const PageRun> runs);

}  // namespace xmpi::image
