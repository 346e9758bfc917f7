// libFuzzer target: arbitrary bytes as what a source says on two lanes: chunks of pages whose
// headers are as they should be and whose payloads are not. Beyond not crashing: what is decoded
// keeps to its rules, the store stays below its limit, what was taken in is there, and nothing is
// left when it is dropped.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "image/page_chunk.h"
#include "image/page_hashes.h"
#include "image/page_store.h"

namespace {

using namespace xmpi;         // NOLINT: a test program
using namespace xmpi::image;  // NOLINT

constexpr std::uint64_t kLimit = 1u << 20;

void CheckDecoded(std::span<const std::byte> payload) {
  static std::vector<std::byte> buffer(kMaxPageDataBytes);
  const Result<PagePayload> pages = DecodePages(payload, buffer);
  if (!pages) return;
  std::uint64_t end = 0, data = 0;
  for (const PageEntry& entry : pages->entries) {
    PageRun rest = entry.run;
    XMPI_CHECK(IsWhole(rest) && rest.address >= end);
    end = EndOf(rest);
    if (entry.kind == PageKind::kData) data += rest.pages * kPageBytes;
    (void)TakePiece(&rest);
    XMPI_CHECK(rest.pages == 0);
  }
  XMPI_CHECK(pages->data.size() == data && data <= kMaxPageDataBytes);
}

// Every page of a chunk that was accepted can be read.
void CheckHeld(PageStore& store, const Chunk& chunk) {
  static std::vector<std::byte> buffer(kMaxPageDataBytes), page(kPageBytes);
  const Result<PagePayload> pages = DecodePages(chunk.payload, buffer);
  XMPI_CHECK(pages);
  for (const PageEntry& entry : pages->entries) {
    for (std::uint64_t i = 0; i < entry.run.pages; ++i) {
      const auto read = store.Rank(chunk.header.rank)
                            ->Read(static_cast<pid_t>(chunk.header.file),
                                   entry.run.address + i * kPageBytes, page);
      XMPI_CHECK(read && *read == kPageBytes);
    }
  }
}

}  // namespace

// The input: chunks of one byte, with lane, rank and PID in its bits, and a payload with its
// length.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ByteReader in({reinterpret_cast<const char*>(data), size});
  PageStore store({0, 1}, kLimit);
  LaneConnection lanes[2];
  std::uint64_t numbers[2] = {};
  for (const std::uint16_t lane : {1, 2})
    lanes[lane - 1] = store.Open({.stream = {}, .lane = lane, .lanes = 2}).value();
  while (in.ok() && !in.AtEnd()) {
    const unsigned bits = in.Get<std::uint8_t>();
    const std::span<const std::byte> payload = AsBytes(in.GetString(kMaxPayloadBytes));
    const unsigned lane = bits & 1;
    const Chunk chunk{{.kind = ChunkKind::kPages,
                       .rank = bits >> 1 & 3,
                       .file = bits >> 3 & 3,
                       .offset = numbers[lane],
                       .length = static_cast<std::uint32_t>(payload.size())},
                      payload};
    CheckDecoded(payload);
    if (!store.Accept(lanes[lane], chunk)) continue;
    ++numbers[lane];
    CheckHeld(store, chunk);
    XMPI_CHECK(store.bytes() <= kLimit);
  }
  store.Drop(0);
  store.Drop(1);
  XMPI_CHECK(store.bytes() == 0);
  return 0;
}
