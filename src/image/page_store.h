// PageStore: the target's half of the lanes. It takes in chunks of pages, keeps the latest version
// of every page with the hash of its bytes as they came, and calls a rank's memory right only when
// every page that the source names is there and the digest over all of them is the source's. Pages
// that are zero cost nothing. What it holds, with its own bookkeeping, stays below a limit.
//
// Each lane has one connection at a time, which Open makes, and may be a thread of its own; a later
// connection ends the former, and so does damage: then every lane starts from nothing.
//
// Owns the memory, which lives as long as anybody holds a StoredPages of it. Never believes a
// number it was sent; does no IO but for ReceivePages, through the caller's functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "image/chunk.h"
#include "image/page_chunk.h"
#include "image/pages.h"

namespace xmpi::image {

class PageBudget;
class RankPages;

// A connection of a lane.
struct LaneConnection {
  unsigned lane = 0;
  std::uint64_t number = 0;    // of the connection
  std::uint64_t accepted = 0;  // chunks that were taken in before
};

class PageStore {
 public:
  PageStore(const std::vector<RankId>& ranks, std::uint64_t limit_bytes);
  ~PageStore();

  // A new connection; kProtocol when there are not so many lanes.
  Result<LaneConnection> Open(const Begin& begin);
  Result<> Accept(const LaneConnection& connection, const Chunk& chunk);
  // How many chunks the lane has taken in, all in all.
  Result<std::uint64_t> Accepted(const LaneConnection& connection);

  // Once all lanes have delivered. From then on the rank's pages are what they are. kUnreachable
  // when something is missing or damaged: the process's pages are dropped, and it is worth other
  // connections.
  Result<> Verify(RankId rank, std::span<const TaskMemory> memory);
  // Gives back what the memory's runs do not name. Only when no lane has anything more to bring:
  // copies may be taken from any page.
  void Prune(RankId rank, std::span<const TaskMemory> memory);
  // Of a rank that is expected here, else nullptr.
  std::shared_ptr<StoredPages> Rank(RankId rank) const;
  void Drop(RankId rank);

  // What all pages cost, and the books about them.
  std::uint64_t bytes() const;

 private:
  struct Lane {
    std::mutex mutex;
    std::uint64_t connection = 0;
    std::uint64_t accepted = 0;
    std::vector<std::byte> buffer;
  };

  static Result<> CheckCurrent(const Lane& lane, const LaneConnection& connection);
  Result<> TakeIn(unsigned lane, const Chunk& chunk, std::span<std::byte> buffer);
  Result<> PutData(RankPages& pages, pid_t pid, const PageRun& run,
                   std::span<const std::byte> bytes);
  Result<> Copy(unsigned lane, RankPages& pages, pid_t pid, const PageEntry& entry);
  RankPages* Find(RankId rank) const;
  Lane& LaneAt(unsigned lane) { return lane_[lane - 1]; }
  void StartLanesAnew();

  std::mutex mutex_;
  unsigned lanes_ = 0;  // as the first connection says
  std::array<Lane, kMaxLanes> lane_;
  std::shared_ptr<PageBudget> budget_;
  std::map<RankId, std::shared_ptr<RankPages>> ranks_;  // never changes
};

// The target's side of a lane's connection after kBegin: says how many chunks it has taken in,
// takes more until kEnd, and says so again whenever it is asked. Refuses with the reason when
// something does not check.
Result<> ReceivePages(const ReadAll& read, const WriteAll& write, const Begin& begin,
                      PageStore* store);

}  // namespace xmpi::image
