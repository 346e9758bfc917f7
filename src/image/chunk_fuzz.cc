// libFuzzer target: arbitrary bytes as the stream that a source sends. So that the fuzzer gets past
// the checksums, each chunk's stored checksum is made right first; beyond that nothing is mended.
// Beyond not crashing: what is called whole has a manifest that its files fit, the storage holds no
// more than the limit, and no name in it is a path.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "image/assembler.h"
#include "image/chunk.h"
#include "image/hash.h"
#include "image/ranges.h"
#include "image/source.h"
#include "image/testing.h"

namespace {

using namespace xmpi;         // NOLINT: a test program
using namespace xmpi::image;  // NOLINT

constexpr std::uint64_t kLimit = 1 << 16;
constexpr StreamId kStream{.slot = 1, .epoch = 1, .migration = 1, .attempt = 1};

// Gives every chunk in the stream the checksum that it should have.
std::string Mended(std::string_view bytes) {
  std::string out;
  while (bytes.size() >= kChunkHeaderBytes) {
    std::array<std::byte, kChunkHeaderBytes> raw;
    std::ranges::copy(AsBytes(bytes.substr(0, kChunkHeaderBytes)), raw.begin());
    const Result<ChunkHeader> header = DecodeHeader(raw);
    if (!header || header->length > bytes.size() - kChunkHeaderBytes) break;
    const std::string_view payload = bytes.substr(kChunkHeaderBytes, header->length);
    XMPI_CHECK(WriteChunk(AppendTo(&out), *header, AsBytes(payload)));
    bytes.remove_prefix(kChunkHeaderBytes + header->length);
  }
  return out + std::string(bytes);
}

void CheckWhole(const Assembler& assembler, const MemoryStorage& storage, RankId rank) {
  const Manifest& manifest = assembler.ManifestOf(rank);
  const auto& files = storage.files.at(rank);
  XMPI_CHECK(manifest.rank == rank && files.size() == manifest.files.size());
  std::uint32_t number = 0;
  for (const ManifestFile& file : manifest.files) {
    const auto& [name, content] = files.at(++number);
    XMPI_CHECK(name == file.name && content.size() == file.length);
    XMPI_CHECK(HashOf(AsBytes(content)) == file.hash);
  }
}

void CheckStorage(const MemoryStorage& storage) {
  std::uint64_t held = 0;
  for (const auto& [rank, files] : storage.files) {
    for (const auto& [number, file] : files) {
      held += file.second.size();
      XMPI_CHECK(IsPlainFileName(file.first));
    }
  }
  XMPI_CHECK(held <= kLimit);
}

void RunStream(std::string_view bytes) {
  MemoryStorage storage;
  Assembler assembler(&storage, {0, 1}, kLimit);
  // What ReceiveImages does, with one buffer for all runs: making it anew takes most of the time.
  static std::vector<std::byte> buffer(kMaxPayloadBytes);
  std::string answer;
  if (!ReceiveBegin(TakeFrom(&bytes), AppendTo(&answer), kStream)) return;
  assembler.OnConnected();
  while (!assembler.ended()) {
    const Result<Chunk> chunk = ReadChunk(TakeFrom(&bytes), buffer);
    if (!chunk || !assembler.Accept(*chunk)) break;
  }
  CheckStorage(storage);
  const Holdings holdings = assembler.Holds();
  XMPI_CHECK(DecodeHoldings(AsBytes(EncodeHoldings(holdings))).value() == holdings);
  for (const auto& [rank, held] : holdings) {
    if (held.whole) CheckWhole(assembler, storage, rank);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  (void)DecodeManifest(bytes);
  (void)DecodeHoldings(AsBytes(bytes));
  RunStream(bytes);
  RunStream(Mended(bytes));
  return 0;
}
