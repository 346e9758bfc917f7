#include "image/assembler.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <format>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "image/hash.h"
#include "image/page_store.h"

namespace xmpi::image {
namespace {

template <class... Arguments>
std::unexpected<Error> Refuse(std::format_string<Arguments...> format, Arguments&&... arguments) {
  return Fail(ErrorCode::kProtocol, std::format(format, std::forward<Arguments>(arguments)...));
}

}  // namespace

struct Assembler::File {
  std::string name;
  std::uint64_t length = 0;
  Ranges held;
  // Grows with the bytes that come in order, which is the usual way, so that the file need not be
  // read again at the end.
  Hasher hasher;
  std::uint64_t hashed = 0;
};

struct Assembler::RankState {
  std::map<std::uint32_t, std::unique_ptr<File>> files;  // by number, from 1
  std::set<std::string> names;
  std::optional<Hash128> manifest_hash;
  std::string manifest_bytes;
  Ranges manifest_held;
  std::optional<Manifest> promised;  // once the manifest's bytes are here and check
  std::optional<Manifest> manifest;  // once the rank is complete
  std::uint64_t declared_bytes = 0;
};

Assembler::Assembler(Storage* storage, std::vector<RankId> ranks, std::uint64_t limit_bytes,
                     PageStore* pages)
    : storage_(storage), limit_bytes_(limit_bytes), pages_(pages) {
  for (RankId rank : ranks) states_.emplace(rank, std::make_unique<RankState>());
}

Assembler::~Assembler() = default;

Result<> Assembler::Accept(const Chunk& chunk) {
  const ChunkHeader& header = chunk.header;
  if (header.kind == ChunkKind::kWait) return {};
  if (ended_) return Refuse("an image chunk out of place");
  if (header.kind == ChunkKind::kEnd) {
    ended_ = true;
    sent_bytes_ = header.total;
    return {};
  }
  const auto state = states_.find(header.rank);
  if (state == states_.end()) return Refuse("image of rank {}, which is not expected", header.rank);
  if (state->second->manifest) return Refuse("image of rank {} is whole already", header.rank);
  switch (header.kind) {
    case ChunkKind::kFile:
      return Declare(*state->second, chunk);
    case ChunkKind::kManifest:
      return DeclareManifest(*state->second, chunk);
    case ChunkKind::kData:
      return Data(*state->second, chunk);
    default:
      return Refuse("{} came where no such chunk belongs", ToString(header.kind));
  }
}

Result<> Assembler::Declare(RankState& state, const Chunk& chunk) {
  const ChunkHeader& header = chunk.header;
  std::string name(AsText(chunk.payload));
  if (const auto known = state.files.find(header.file); known != state.files.end()) {
    // A new connection says again what the old one said.
    if (known->second->name == name && known->second->length == header.total) return {};
    return Refuse("file {} of rank {} was declared otherwise", header.file, header.rank);
  }
  if (header.file == 0 || header.file > kMaxFiles || !IsPlainFileName(name)) {
    return Refuse("file {} of rank {} has no acceptable name or number", header.file, header.rank);
  }
  if (header.total > limit_bytes_ - declared_bytes_) {
    return Refuse("the images are larger than the {} bytes that there is room for", limit_bytes_);
  }
  if (!state.names.insert(name).second) {
    return Refuse("two files of rank {} are called {}", header.rank, name);
  }
  XMPI_RETURN_IF_ERROR(storage_->Create(header.rank, header.file, name, header.total));
  declared_bytes_ += header.total;
  state.declared_bytes += header.total;
  auto file = std::make_unique<File>();
  file->name = std::move(name);
  file->length = header.total;
  state.files.emplace(header.file, std::move(file));
  return Finish(header.rank, state);
}

Result<> Assembler::DeclareManifest(RankState& state, const Chunk& chunk) {
  ByteReader in(AsText(chunk.payload));
  Hash128 hash;
  hash.low = in.Get<std::uint64_t>();
  hash.high = in.Get<std::uint64_t>();
  if (!in.AtEnd() || chunk.header.total == 0 || chunk.header.total > kMaxManifestBytes) {
    return Refuse("malformed declaration of the manifest of rank {}", chunk.header.rank);
  }
  if (state.manifest_hash) {
    if (*state.manifest_hash == hash && state.manifest_bytes.size() == chunk.header.total)
      return {};
    return Refuse("the manifest of rank {} was declared otherwise", chunk.header.rank);
  }
  state.manifest_hash = hash;
  state.manifest_bytes.resize(chunk.header.total);
  return {};
}

Result<> Assembler::Data(RankState& state, const Chunk& chunk) {
  if (chunk.payload.empty()) return Refuse("an empty chunk of data");
  XMPI_RETURN_IF_ERROR(chunk.header.file == 0 ? StoreManifestBytes(state, chunk)
                                              : StoreFileBytes(state, chunk));
  bytes_ += chunk.payload.size();
  return Finish(chunk.header.rank, state);
}

Result<> Assembler::StoreManifestBytes(RankState& state, const Chunk& chunk) {
  const ChunkHeader& header = chunk.header;
  const std::size_t size = state.manifest_bytes.size();
  if (!state.manifest_hash || header.offset > size || header.length > size - header.offset ||
      state.manifest_held.size() >= kMaxIntervals ||
      !state.manifest_held.Add(header.offset, header.offset + header.length)) {
    return Refuse("bytes of the manifest of rank {} out of place", header.rank);
  }
  std::memcpy(state.manifest_bytes.data() + header.offset, chunk.payload.data(), header.length);
  return {};
}

Result<> Assembler::StoreFileBytes(RankState& state, const Chunk& chunk) {
  const ChunkHeader& header = chunk.header;
  const auto found = state.files.find(header.file);
  if (found == state.files.end()) {
    return Refuse("bytes of file {} of rank {}, which was not declared", header.file, header.rank);
  }
  File& file = *found->second;
  const std::uint64_t end = header.offset + header.length;
  if (header.offset > file.length || header.length > file.length - header.offset) {
    return Refuse("bytes beyond the end of file {} of rank {}", header.file, header.rank);
  }
  if (file.held.size() >= kMaxIntervals || file.held.NextHeld(header.offset, end) < end ||
      file.held.NextMissing(header.offset) != header.offset) {
    return Refuse("bytes of file {} of rank {} came twice or in crumbs", header.file, header.rank);
  }
  XMPI_RETURN_IF_ERROR(storage_->Write(header.rank, header.file, header.offset, chunk.payload));
  XMPI_CHECK(file.held.Add(header.offset, end));
  if (file.hashed == header.offset) {
    file.hasher.Update(chunk.payload);
    file.hashed = end;
  }
  return {};
}

// Believes the manifest's bytes once they are all here and check.
Result<> Assembler::OpenManifest(RankId rank, RankState& state) {
  if (state.promised || !state.manifest_hash) return {};
  const std::string& bytes = state.manifest_bytes;
  if (!state.manifest_held.Covers(0, bytes.size())) return {};
  if (image::HashOf(AsBytes(bytes)) != *state.manifest_hash) {
    return Damaged(rank, state, "its manifest was damaged");
  }
  Result<Manifest> manifest = DecodeManifest(bytes);
  if (!manifest) return Damaged(rank, state, manifest.error().message);
  if (manifest->rank != rank) return Damaged(rank, state, "its manifest is another rank's");
  if (!manifest->memory.empty() && pages_ == nullptr)
    return Refuse("rank {} has memory outside of its image, which is not expected here", rank);
  state.promised = std::move(*manifest);
  return {};
}

// When the last byte is here, all is compared with the manifest; before that nothing is.
Result<> Assembler::Finish(RankId rank, RankState& state) {
  XMPI_RETURN_IF_ERROR(OpenManifest(rank, state));
  if (!state.promised || state.files.size() < state.promised->files.size()) return {};
  for (const auto& [number, file] : state.files) {
    if (!file->held.Covers(0, file->length)) return {};
  }
  XMPI_RETURN_IF_ERROR(CheckFiles(rank, state));
  if (pages_ != nullptr) {
    const Result<> verified = pages_->Verify(rank, state.promised->memory);
    if (!verified) return Damaged(rank, state, verified.error().message);
  }
  state.manifest = std::move(state.promised);
  ++complete_ranks_;
  return {};
}

Result<> Assembler::CheckFiles(RankId rank, RankState& state) {
  if (state.files.size() > state.promised->files.size()) {
    return Damaged(rank, state, "it has files that its manifest does not know");
  }
  std::uint32_t number = 0;
  for (const ManifestFile& listed : state.promised->files) {
    const auto found = state.files.find(++number);
    if (found == state.files.end() || found->second->name != listed.name ||
        found->second->length != listed.length) {
      return Damaged(rank, state, std::format("file {} is not the one in its manifest", number));
    }
    XMPI_ASSIGN_OR_RETURN(const Hash128 hash, HashOf(rank, number, *found->second));
    if (hash != listed.hash)
      return Damaged(rank, state, std::format("{} was damaged", listed.name));
  }
  return {};
}

Result<Hash128> Assembler::HashOf(RankId rank, std::uint32_t number, File& file) {
  std::vector<std::byte> buffer(file.hashed < file.length ? kMaxPayloadBytes : 0);
  while (file.hashed < file.length) {
    const std::size_t size = std::min<std::uint64_t>(buffer.size(), file.length - file.hashed);
    const std::span<std::byte> part(buffer.data(), size);
    XMPI_RETURN_IF_ERROR(storage_->Read(rank, number, file.hashed, part));
    file.hasher.Update(part);
    file.hashed += size;
  }
  return file.hasher.Digest();
}

// Nothing of a damaged image can be trusted: it starts from nothing, on another connection.
std::unexpected<Error> Assembler::Damaged(RankId rank, RankState& state, std::string message) {
  storage_->Drop(rank);
  declared_bytes_ -= state.declared_bytes;
  state = RankState{};
  return Fail(ErrorCode::kUnreachable,
              std::format("the image of rank {} cannot be used: {}", rank, message));
}

Holdings Assembler::Holds() const {
  Holdings holdings;
  for (const auto& [rank, state] : states_) {
    RankHoldings& held = holdings[rank];
    held.whole = state->manifest.has_value();
    if (held.whole) continue;
    if (state->manifest_held.size() != 0) held.files[0] = state->manifest_held;
    for (const auto& [number, file] : state->files) {
      if (file->held.size() != 0) held.files[number] = file->held;
    }
  }
  return holdings;
}

const Manifest& Assembler::ManifestOf(RankId rank) const {
  const auto state = states_.find(rank);
  XMPI_CHECK(state != states_.end() && state->second->manifest.has_value());
  return *state->second->manifest;
}

}  // namespace xmpi::image
