#include "image/page_lane.h"

#include <algorithm>
#include <cstring>
#include <format>
#include <string>

#include "base/bytes.h"
#include "base/check.h"
#include "image/hash.h"

namespace xmpi::image {
namespace {

using Clock = std::chrono::steady_clock;

// Pages whose content can be found again: half a gigabyte's worth, in 3 MiB.
constexpr std::size_t kRecentPages = 1u << 17;

bool IsZero(const std::byte* page) {
  return page[0] == std::byte{0} && std::memcmp(page, page + 1, kPageBytes - 1) == 0;
}

// Adds the time until it goes.
class Stopwatch {
 public:
  explicit Stopwatch(std::chrono::nanoseconds* total) : total_(total) {}
  ~Stopwatch() { *total_ += Clock::now() - begin_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::chrono::nanoseconds* total_;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace

PassStats& PassStats::operator+=(const PassStats& other) {
  read += other.read;
  equal += other.equal;
  zero += other.zero;
  copied += other.copied;
  sent += other.sent;
  unreadable += other.unreadable;
  raw_bytes += other.raw_bytes;
  wire_bytes += other.wire_bytes;
  reading += other.reading;
  hashing += other.hashing;
  compressing += other.compressing;
  writing += other.writing;
  return *this;
}

struct PageLane::Pass {
  Task& task;
  PageSource& source;
  const WriteAll& write;
  const Pace& pace;
  PassStats stats{};
  bool in_hole = false;
};

PageLane::PageLane(unsigned lane, unsigned lanes, std::optional<Encoding> encoding)
    : lane_(lane),
      lanes_(lanes),
      compressor_(encoding),
      recent_(kRecentPages),
      hashes_(kMaxPageDataBytes / kPageBytes) {
  XMPI_CHECK(lane >= 1 && lane <= lanes && lanes <= kMaxLanes);
}

Result<> PageLane::OnConnected(std::uint64_t accepted) {
  if (accepted > next_chunk_)
    return Fail(ErrorCode::kProtocol,
                std::format("the target holds {} chunks of pages, but {} were sent", accepted,
                            next_chunk_));
  ForgetSince(accepted);
  next_chunk_ = accepted;
  return {};
}

Result<PassStats> PageLane::Send(RankId rank, pid_t pid, PageSource& source,
                                 std::span<const PageRun> runs, const WriteAll& write,
                                 const Pace& pace) {
  Pass pass{TaskOf(rank, pid), source, write, pace};
  const auto send = [&]() -> Result<> {
    for (PageRun rest : runs) {
      while (rest.pages > 0) {
        const PageRun piece = TakePiece(&rest);
        if (LaneOf(RegionOf(piece.address), lanes_) != lane_) continue;
        XMPI_RETURN_IF_ERROR(SendPiece(pass, piece));
      }
    }
    return Flush(pass);
  };
  writer_.Clear();
  if (const Result<> sent = send(); !sent) {
    ForgetSince(next_chunk_);  // it was noted, but did not go out
    return std::unexpected(sent.error());
  }
  return pass.stats;
}

Result<> PageLane::SendPiece(Pass& pass, PageRun piece) {
  while (piece.pages > 0) {
    if (writer_.IsFull()) XMPI_RETURN_IF_ERROR(Flush(pass));
    XMPI_RETURN_IF_ERROR(SendReadable(pass, &piece));
  }
  return {};
}

// One read, of what there is room for; a page that cannot be read is passed over. Holes are rarely
// of one page: behind one, each page is tried by itself.
Result<> PageLane::SendReadable(Pass& pass, PageRun* piece) {
  const std::span<std::byte> room = writer_.Room();
  const std::uint64_t pages = pass.in_hole ? 1 : piece->pages;
  const std::span<std::byte> part =
      room.first(std::min<std::uint64_t>(room.size(), pages * kPageBytes));
  if (pass.pace) XMPI_RETURN_IF_ERROR(pass.pace(part.size()));
  Result<std::size_t> got = 0;
  {
    const Stopwatch watch(&pass.stats.reading);
    got = pass.source.Read(pass.task.pid, piece->address, part);
  }
  if (!got) return std::unexpected(got.error());
  if (*got > 0) Take(pass, TakePiece(piece, *got / kPageBytes), part.data());
  pass.in_hole = *got < part.size();
  if (!pass.in_hole) return {};
  const PageRun hole = TakePiece(piece, 1);
  RegionAt(pass.task, hole.address).hashes.present.reset(PageInRegion(hole.address));
  ++pass.stats.unreadable;
  return {};
}

void PageLane::Take(Pass& pass, const PageRun& run, const std::byte* bytes) {
  {
    const Stopwatch watch(&pass.stats.hashing);
    for (std::size_t i = 0; i < run.pages; ++i)
      hashes_[i] = HashOf(std::span(bytes + i * kPageBytes, kPageBytes));
  }
  Region& region = RegionAt(pass.task, run.address);
  for (std::size_t i = 0; i < run.pages; ++i)
    TakePage(pass, region, run.address + i * kPageBytes, bytes + i * kPageBytes, hashes_[i]);
  pass.stats.read += run.pages;
}

void PageLane::TakePage(Pass& pass, Region& region, std::uint64_t address, const std::byte* page,
                        const Hash128& hash) {
  const std::size_t number = PageInRegion(address);
  if (region.hashes.Has(number, hash)) {
    ++pass.stats.equal;
    return;
  }
  Recent& recent = RecentOf(hash);
  const bool is_copy = Holds(recent, hash);  // before this page is noted: it may be the recent one
  region.hashes.Set(number, hash);
  region.last_chunk = next_chunk_;
  if (hash == ZeroPageHash() && IsZero(page)) {
    writer_.AddZero(address);
    ++pass.stats.zero;
  } else if (is_copy) {
    writer_.AddCopy(address, {recent.task->rank, recent.task->pid, recent.address});
    ++pass.stats.copied;
  } else {
    writer_.AddData(address, page);
    recent = {&pass.task, address, hash.high};
    ++pass.stats.sent;
  }
}

Result<> PageLane::Flush(Pass& pass) {
  if (writer_.empty()) return {};
  std::span<const std::byte> payload;
  {
    const Stopwatch watch(&pass.stats.compressing);
    payload = writer_.Encode(&compressor_);
  }
  pass.stats.raw_bytes += writer_.data_bytes();
  pass.stats.wire_bytes += kChunkHeaderBytes + payload.size();
  const ChunkHeader header{.kind = ChunkKind::kPages,
                           .rank = pass.task.rank,
                           .file = static_cast<std::uint32_t>(pass.task.pid),
                           .offset = next_chunk_,
                           .length = static_cast<std::uint32_t>(payload.size())};
  ++next_chunk_;  // also when the write fails: the target may have got it all the same
  const auto begin = Clock::now();
  XMPI_RETURN_IF_ERROR(WriteChunk(pass.write, header, payload));
  const auto took = Clock::now() - begin;
  compressor_.OnWritten(payload.size(), took);
  pass.stats.writing += took;
  writer_.Clear();
  return {};
}

Result<> PageLane::Confirm(const ReadAll& read, const WriteAll& write) const {
  XMPI_RETURN_IF_ERROR(WriteChunk(write, ChunkHeader{.kind = ChunkKind::kSync}, {}));
  XMPI_ASSIGN_OR_RETURN(const std::uint64_t accepted, ReceiveAccepted(read));
  if (accepted == next_chunk_) return {};
  return Fail(ErrorCode::kProtocol, std::format("the target has taken in {} chunks of pages of {}",
                                                accepted, next_chunk_));
}

const PageHashes* PageLane::Find(RankId rank, pid_t pid, std::uint64_t region) const {
  const auto task = tasks_.find({rank, pid});
  if (task == tasks_.end()) return nullptr;
  const auto found = task->second->regions.find(region);
  return found == task->second->regions.end() ? nullptr : &found->second->hashes;
}

void PageLane::ForgetSince(std::uint64_t chunk) {
  for (const auto& [id, task] : tasks_) {
    for (const auto& [number, region] : task->regions) {
      if (region->last_chunk >= chunk) region->hashes.present.reset();
    }
  }
}

PageLane::Task& PageLane::TaskOf(RankId rank, pid_t pid) {
  std::unique_ptr<Task>& task = tasks_[{rank, pid}];
  if (!task) task = std::make_unique<Task>(rank, pid);
  return *task;
}

PageLane::Region& PageLane::RegionAt(Task& task, std::uint64_t address) {
  std::unique_ptr<Region>& region = task.regions[RegionOf(address)];
  if (!region) region = std::make_unique<Region>();
  return *region;
}

PageLane::Recent& PageLane::RecentOf(const Hash128& hash) {
  return recent_[hash.low % kRecentPages];
}

bool PageLane::Holds(const Recent& recent, const Hash128& hash) const {
  if (recent.task == nullptr || recent.hash_high != hash.high) return false;
  const auto region = recent.task->regions.find(RegionOf(recent.address));
  return region != recent.task->regions.end() &&
         region->second->hashes.Has(PageInRegion(recent.address), hash);
}

Result<std::uint64_t> ReceiveAccepted(const ReadAll& read) {
  std::vector<std::byte> buffer(kMaxPayloadBytes);
  XMPI_ASSIGN_OR_RETURN(const Chunk chunk, ReadChunk(read, buffer));
  if (chunk.header.kind == ChunkKind::kRefused)
    return Fail(ErrorCode::kRefused, std::string(AsText(chunk.payload)));
  ByteReader in(AsText(chunk.payload));
  const std::uint64_t accepted = in.Get<std::uint64_t>();
  if (chunk.header.kind != ChunkKind::kHolds || !in.AtEnd())
    return Fail(ErrorCode::kProtocol, "the target did not say which pages it holds");
  return accepted;
}

std::optional<Hash128> DigestOf(std::span<const std::unique_ptr<PageLane>> lanes, RankId rank,
                                pid_t pid, std::span<const PageRun> runs) {
  const auto count = static_cast<unsigned>(lanes.size());
  return Digest(runs, [&](std::uint64_t region) {
    return lanes[LaneOf(region, count) - 1]->Find(rank, pid, region);
  });
}

}  // namespace xmpi::image
