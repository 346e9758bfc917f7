#include "image/page_chunk.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/bytes.h"
#include "base/check.h"

namespace xmpi::image {
namespace {

constexpr std::size_t kHeadBytes = 9;
constexpr std::size_t kEntryBytes = 13;
constexpr std::size_t kCopyEntryBytes = kEntryBytes + 16;
// Reads of fewer pages cost more than the chunk that is not quite full.
constexpr std::size_t kLeastRoomBytes = 16 * kPageBytes;
// As many entries may come of one read.
constexpr std::size_t kMaxEntries =
    (kMaxPageTableBytes - kHeadBytes) / kCopyEntryBytes - kMaxPageDataBytes / kPageBytes;

// The next page of what `entry` is the pages of.
bool Continues(const PageEntry& entry, PageKind kind, std::uint64_t address,
               const PageOrigin& from) {
  if (entry.kind != kind || EndOf(entry.run) != address || PageInRegion(address) == 0) return false;
  if (kind != PageKind::kCopy) return true;
  return entry.from.rank == from.rank && entry.from.pid == from.pid &&
         entry.from.address + entry.run.pages * kPageBytes == from.address &&
         PageInRegion(from.address) != 0;
}

std::string EncodeTable(Encoding encoding, std::size_t data_bytes,
                        std::span<const PageEntry> entries) {
  ByteWriter out;
  out.Put(static_cast<std::uint8_t>(encoding));
  out.Put(static_cast<std::uint32_t>(data_bytes));
  out.Put(static_cast<std::uint32_t>(entries.size()));
  for (const PageEntry& entry : entries) {
    out.Put(entry.run.address);
    out.Put(static_cast<std::uint32_t>(entry.run.pages));
    out.Put(static_cast<std::uint8_t>(entry.kind));
    if (entry.kind != PageKind::kCopy) continue;
    out.Put(entry.from.rank);
    out.Put(static_cast<std::uint32_t>(entry.from.pid));
    out.Put(entry.from.address);
  }
  return out.Take();
}

bool EndsInItsRegion(const PageRun& run) {
  return IsWhole(run) && run.pages <= kPagesPerRegion - PageInRegion(run.address);
}

bool GetEntry(ByteReader& in, PageEntry* entry) {
  entry->run.address = in.Get<std::uint64_t>();
  entry->run.pages = in.Get<std::uint32_t>();
  entry->kind = static_cast<PageKind>(in.Get<std::uint8_t>());
  if (!in.ok() || !EndsInItsRegion(entry->run)) return false;
  if (entry->kind != PageKind::kCopy)
    return entry->kind == PageKind::kData || entry->kind == PageKind::kZero;
  entry->from.rank = in.Get<std::uint32_t>();
  entry->from.pid = static_cast<pid_t>(in.Get<std::uint32_t>());
  entry->from.address = in.Get<std::uint64_t>();
  return in.ok() && entry->from.pid > 0 && EndsInItsRegion({entry->from.address, entry->run.pages});
}

// The table, when it is one, and how many bytes of data it speaks of.
bool GetTable(ByteReader& in, std::vector<PageEntry>* entries, std::uint64_t* data_bytes) {
  entries->resize(in.GetCount(kMaxPageTableBytes / kEntryBytes, kEntryBytes));
  std::uint64_t end = 0;
  for (PageEntry& entry : *entries) {
    if (!GetEntry(in, &entry) || entry.run.address < end) return false;
    end = EndOf(entry.run);
    if (entry.kind == PageKind::kData) *data_bytes += entry.run.pages * kPageBytes;
  }
  return in.ok() && !entries->empty();
}

}  // namespace

PageChunkWriter::PageChunkWriter() : buffer_(kMaxPayloadBytes), encoded_(kMaxPayloadBytes) {}

std::span<std::byte> PageChunkWriter::Room() {
  return std::span(buffer_).subspan(kMaxPageTableBytes + data_bytes_);
}

bool PageChunkWriter::IsFull() const {
  return kMaxPageDataBytes - data_bytes_ < kLeastRoomBytes || entries_.size() >= kMaxEntries;
}

void PageChunkWriter::AddData(std::uint64_t address, const std::byte* page) {
  std::byte* const place = Room().data();
  XMPI_CHECK(page >= place && data_bytes_ + kPageBytes <= kMaxPageDataBytes);
  if (page != place) std::memmove(place, page, kPageBytes);
  data_bytes_ += kPageBytes;
  Add(PageKind::kData, address, {});
}

void PageChunkWriter::Add(PageKind kind, std::uint64_t address, const PageOrigin& from) {
  if (!entries_.empty() && Continues(entries_.back(), kind, address, from)) {
    ++entries_.back().run.pages;
  } else {
    entries_.push_back({kind, {address, 1}, from});
  }
}

std::span<const std::byte> PageChunkWriter::data() const {
  return std::span(buffer_).subspan(kMaxPageTableBytes, data_bytes_);
}

std::span<const std::byte> PageChunkWriter::Encode(Compressor* compressor) {
  const std::span<std::byte> out(encoded_);
  const Compressor::Encoded encoded = compressor->Encode(data(), out.subspan(kMaxPageTableBytes));
  const std::string table = EncodeTable(encoded.encoding, data_bytes_, entries_);
  XMPI_CHECK(table.size() <= kMaxPageTableBytes);
  // The table goes right before the data, wherever that is.
  const std::span<std::byte> all = encoded.encoding == Encoding::kNone ? std::span(buffer_) : out;
  const std::size_t begin = kMaxPageTableBytes - table.size();
  std::memcpy(all.data() + begin, table.data(), table.size());
  return all.subspan(begin, table.size() + encoded.bytes);
}

void PageChunkWriter::Clear() {
  entries_.clear();
  data_bytes_ = 0;
}

Result<PagePayload> DecodePages(std::span<const std::byte> payload, std::span<std::byte> buffer) {
  const auto malformed = [] { return Fail(ErrorCode::kProtocol, "malformed chunk of pages"); };
  ByteReader in(AsText(payload));
  const auto encoding = static_cast<Encoding>(in.Get<std::uint8_t>());
  const std::uint64_t raw_bytes = in.Get<std::uint32_t>();
  PagePayload pages;
  std::uint64_t data_bytes = 0;
  if (!GetTable(in, &pages.entries, &data_bytes) || data_bytes != raw_bytes ||
      raw_bytes > kMaxPageDataBytes) {
    return malformed();
  }
  const std::span<const std::byte> data = payload.last(in.left());
  if (encoding == Encoding::kNone) {
    if (data.size() != raw_bytes) return malformed();
    pages.data = data;
    return pages;
  }
  pages.data = buffer.first(raw_bytes);
  if (!Decompress(encoding, data, buffer.first(raw_bytes))) return malformed();
  return pages;
}

}  // namespace xmpi::image
