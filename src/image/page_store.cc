#include "image/page_store.h"

#include <format>
#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "image/hash.h"
#include "image/page_hashes.h"
#include "image/rank_pages.h"
#include "image/source.h"

namespace xmpi::image {
namespace {

std::unexpected<Error> Foreign(const PageEntry& entry) {
  return Fail(ErrorCode::kProtocol,
              std::format("pages at {:#x} came where they do not belong", entry.run.address));
}

Result<> SayAccepted(const WriteAll& write, std::uint64_t accepted) {
  ByteWriter out;
  out.Put(accepted);
  return WriteChunk(write, {.kind = ChunkKind::kHolds, .length = sizeof(accepted)},
                    AsBytes(out.bytes()));
}

}  // namespace

PageStore::PageStore(const std::vector<RankId>& ranks, std::uint64_t limit_bytes)
    : budget_(std::make_shared<PageBudget>(limit_bytes)) {
  const auto pool = std::make_shared<RegionPool>();
  for (const RankId rank : ranks)
    ranks_.emplace(rank, std::make_shared<RankPages>(rank, pool, budget_));
}

PageStore::~PageStore() = default;

Result<LaneConnection> PageStore::Open(const Begin& begin) {
  {
    const std::lock_guard lock(mutex_);
    if (lanes_ == 0) lanes_ = begin.lanes;
    if (begin.lane == kControl || begin.lane > lanes_ || begin.lanes != lanes_)
      return Fail(ErrorCode::kProtocol, std::format("lane {} of {}, where there are {}", begin.lane,
                                                    begin.lanes, lanes_));
  }
  Lane& lane = LaneAt(begin.lane);
  const std::lock_guard lock(lane.mutex);
  lane.buffer.resize(kMaxPageDataBytes);
  return LaneConnection{begin.lane, ++lane.connection, lane.accepted};
}

Result<> PageStore::Accept(const LaneConnection& connection, const Chunk& chunk) {
  Lane& lane = LaneAt(connection.lane);
  const std::lock_guard lock(lane.mutex);
  XMPI_RETURN_IF_ERROR(CheckCurrent(lane, connection));
  if (chunk.header.kind != ChunkKind::kPages || chunk.header.offset != lane.accepted)
    return Fail(ErrorCode::kProtocol, "a chunk out of place on a lane");
  XMPI_RETURN_IF_ERROR(TakeIn(connection.lane, chunk, lane.buffer));
  ++lane.accepted;
  return {};
}

Result<std::uint64_t> PageStore::Accepted(const LaneConnection& connection) {
  Lane& lane = LaneAt(connection.lane);
  const std::lock_guard lock(lane.mutex);
  XMPI_RETURN_IF_ERROR(CheckCurrent(lane, connection));
  return lane.accepted;
}

Result<> PageStore::CheckCurrent(const Lane& lane, const LaneConnection& connection) {
  if (lane.connection == connection.number) return {};
  return Fail(ErrorCode::kUnreachable, "this lane is to be connected anew");
}

Result<> PageStore::TakeIn(unsigned lane, const Chunk& chunk, std::span<std::byte> buffer) {
  RankPages* const pages = Find(chunk.header.rank);
  const auto pid = static_cast<pid_t>(chunk.header.file);
  if (pages == nullptr || pid <= 0)
    return Fail(ErrorCode::kProtocol,
                std::format("pages of process {} of rank {}, which is not expected",
                            chunk.header.file, chunk.header.rank));
  XMPI_ASSIGN_OR_RETURN(const PagePayload payload, DecodePages(chunk.payload, buffer));
  std::span<const std::byte> data = payload.data;
  for (const PageEntry& entry : payload.entries) {
    if (LaneOf(RegionOf(entry.run.address), lanes_) != lane) return Foreign(entry);
    if (entry.kind == PageKind::kZero) {
      XMPI_RETURN_IF_ERROR(pages->PutZero(pid, entry.run));
    } else if (entry.kind == PageKind::kCopy) {
      XMPI_RETURN_IF_ERROR(Copy(lane, *pages, pid, entry));
    } else {
      const std::size_t size = entry.run.pages * kPageBytes;
      XMPI_RETURN_IF_ERROR(PutData(*pages, pid, entry.run, data.first(size)));
      data = data.subspan(size);
    }
  }
  return {};
}

Result<> PageStore::PutData(RankPages& pages, pid_t pid, const PageRun& run,
                            std::span<const std::byte> bytes) {
  std::array<Hash128, kPagesPerRegion> hashes;
  for (std::size_t i = 0; i < run.pages; ++i)
    hashes[i] = HashOf(bytes.subspan(i * kPageBytes, kPageBytes));
  return pages.PutData(pid, run, bytes, std::span(hashes).first(run.pages));
}

// Through a buffer: the pages may be of one region, and even overlap.
Result<> PageStore::Copy(unsigned lane, RankPages& pages, pid_t pid, const PageEntry& entry) {
  const PageOrigin& from = entry.from;
  RankPages* const origin = Find(from.rank);
  if (origin == nullptr || LaneOf(RegionOf(from.address), lanes_) != lane) return Foreign(entry);
  std::vector<std::byte> bytes(entry.run.pages * kPageBytes);
  XMPI_ASSIGN_OR_RETURN(const std::size_t got, origin->Read(from.pid, from.address, bytes));
  if (got != bytes.size())
    return Fail(ErrorCode::kProtocol,
                std::format("a copy of pages at {:#x} of rank {}, which are not here", from.address,
                            from.rank));
  return PutData(pages, pid, entry.run, bytes);
}

Result<> PageStore::Verify(RankId rank, std::span<const TaskMemory> memory) {
  RankPages* const pages = Find(rank);
  XMPI_CHECK(pages != nullptr);
  Result<> verified = pages->Verify(memory);
  if (!verified) StartLanesAnew();
  return verified;
}

void PageStore::Prune(RankId rank, std::span<const TaskMemory> memory) {
  if (RankPages* const pages = Find(rank)) pages->Prune(memory);
}

std::shared_ptr<StoredPages> PageStore::Rank(RankId rank) const {
  const auto found = ranks_.find(rank);
  return found == ranks_.end() ? nullptr : found->second;
}

void PageStore::Drop(RankId rank) {
  if (RankPages* const pages = Find(rank)) pages->Drop();
}

std::uint64_t PageStore::bytes() const { return budget_->used_bytes(); }

RankPages* PageStore::Find(RankId rank) const {
  const auto found = ranks_.find(rank);
  return found == ranks_.end() ? nullptr : found->second.get();
}

// The sources of the lanes believe that what was dropped is here. They learn better when they
// connect again, which they must now.
void PageStore::StartLanesAnew() {
  for (Lane& lane : lane_) {
    const std::lock_guard lock(lane.mutex);
    ++lane.connection;
    lane.accepted = 0;
  }
}

namespace {

Result<> TakeAll(const ReadAll& read, const WriteAll& write, const LaneConnection& connection,
                 PageStore* store) {
  std::vector<std::byte> buffer(kMaxPayloadBytes);
  for (;;) {
    XMPI_ASSIGN_OR_RETURN(const Chunk chunk, ReadChunk(read, buffer));
    if (chunk.header.kind == ChunkKind::kWait) continue;
    if (chunk.header.kind == ChunkKind::kEnd) return {};
    if (chunk.header.kind == ChunkKind::kSync) {
      XMPI_ASSIGN_OR_RETURN(const std::uint64_t accepted, store->Accepted(connection));
      XMPI_RETURN_IF_ERROR(SayAccepted(write, accepted));
    } else {
      XMPI_RETURN_IF_ERROR(store->Accept(connection, chunk));
    }
  }
}

}  // namespace

Result<> ReceivePages(const ReadAll& read, const WriteAll& write, const Begin& begin,
                      PageStore* store) {
  const Result<LaneConnection> connection = store->Open(begin);
  Result<> taken;
  if (!connection) {
    taken = std::unexpected(connection.error());
  } else {
    XMPI_RETURN_IF_ERROR(SayAccepted(write, connection->accepted));
    taken = TakeAll(read, write, *connection, store);
  }
  if (!taken) XMPI_RETURN_IF_ERROR(Refuse(write, taken.error()));
  return taken;
}

}  // namespace xmpi::image
