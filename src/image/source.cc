#include "image/source.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <format>
#include <utility>

#include "base/bytes.h"
#include "image/hash.h"

namespace xmpi::image {
namespace {

// What CRIU leaves beside the image: it describes the dump, not the rank.
bool IsByproduct(std::string_view name) {
  return name.ends_with(".log") || name.starts_with("stats-");
}

Result<> ReadAt(int fd, std::uint64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t size = pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return std::unexpected(ErrnoError("read an image"));
    if (size == 0) return Fail("an image became shorter while it was read");
    out = out.subspan(static_cast<std::size_t>(size));
    offset += static_cast<std::uint64_t>(size);
  }
  return {};
}

}  // namespace

Result<std::vector<ManifestFile>> ListImageFiles(const Fd& directory) {
  Fd again(openat(directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* stream = again ? fdopendir(again.get()) : nullptr;
  if (stream == nullptr) return std::unexpected(ErrnoError("list an image"));
  again.Release();
  std::vector<ManifestFile> files;
  while (const dirent* entry = readdir(stream)) {
    struct stat info{};
    const std::string name = entry->d_name;
    if (fstatat(directory.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(info.st_mode) || IsByproduct(name)) continue;
    files.push_back({name, static_cast<std::uint64_t>(info.st_size), {}});
  }
  closedir(stream);
  std::ranges::sort(files, {}, &ManifestFile::name);
  if (files.size() > kMaxFiles) return Fail(std::format("an image of {} files", files.size()));
  return files;
}

Source::Source(RankImage* image, RankHoldings held)
    : image_(image), held_(std::move(held)), buffer_(kMaxPayloadBytes) {}

Result<std::optional<Chunk>> Source::Next() {
  if (held_.whole) return std::nullopt;
  while (file_ < image_->manifest.files.size()) {
    XMPI_ASSIGN_OR_RETURN(std::optional<Chunk> chunk, NextOfFile());
    if (chunk) return chunk;
  }
  return NextOfManifest();
}

Chunk Source::Make(ChunkKind kind, std::uint64_t offset, std::uint64_t total,
                   std::span<const std::byte> payload) {
  const std::uint32_t number =
      kind == ChunkKind::kManifest || file_ == image_->manifest.files.size()
          ? 0
          : static_cast<std::uint32_t>(file_ + 1);
  bytes_sent_ += payload.size();
  return Chunk{{.kind = kind,
                .rank = image_->manifest.rank,
                .file = number,
                .offset = offset,
                .length = static_cast<std::uint32_t>(payload.size()),
                .total = total},
               payload};
}

Result<> Source::OpenFile() {
  const ManifestFile& file = image_->manifest.files[file_];
  const auto elsewhere = image_->elsewhere.find(file.name);
  fd_ = elsewhere != image_->elsewhere.end()
            ? Fd(fcntl(elsewhere->second.get(), F_DUPFD_CLOEXEC, 3))
            : Fd(openat(image_->directory.get(), file.name.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd_) return std::unexpected(ErrnoError(std::format("open {} of an image", file.name)));
  hash_known_ = file.hash != Hash128{};  // from an earlier sending
  offset_ = 0;
  hasher_ = Hasher();
  return {};
}

// The declaration, then what the target lacks. Held parts are read for the checksum's sake only,
// and not even that when it is known. nullopt: this file is done, and file_ points at the next.
Result<std::optional<Chunk>> Source::NextOfFile() {
  ManifestFile& file = image_->manifest.files[file_];
  if (!fd_) {
    XMPI_RETURN_IF_ERROR(OpenFile());
    return Make(ChunkKind::kFile, 0, file.length, AsBytes(file.name));
  }
  const Ranges& held = held_.files[static_cast<std::uint32_t>(file_ + 1)];
  while (offset_ < file.length) {
    const std::uint64_t missing = held.NextMissing(offset_);
    const bool send = missing == offset_;
    if (!send && hash_known_) {
      offset_ = std::min(missing, file.length);
      continue;
    }
    const std::uint64_t end =
        send ? held.NextHeld(offset_, file.length) : std::min(missing, file.length);
    const std::size_t size = std::min<std::uint64_t>(kMaxPayloadBytes, end - offset_);
    const std::span<std::byte> part(buffer_.data(), size);
    XMPI_RETURN_IF_ERROR(ReadAt(fd_.get(), offset_, part));
    if (!hash_known_) hasher_.Update(part);
    const std::uint64_t offset = std::exchange(offset_, offset_ + size);
    if (send) return Make(ChunkKind::kData, offset, 0, part);
  }
  if (!hash_known_) file.hash = hasher_.Digest();
  fd_.Close();
  ++file_;
  return std::nullopt;
}

Result<std::optional<Chunk>> Source::NextOfManifest() {
  if (!manifest_declared_) {
    manifest_declared_ = true;
    manifest_ = Encode(image_->manifest);
    if (manifest_.size() > kMaxManifestBytes) return Fail("the manifest of an image is too large");
    const Hash128 hash = HashOf(AsBytes(manifest_));
    ByteWriter payload;
    payload.Put<std::uint64_t>(hash.low);
    payload.Put<std::uint64_t>(hash.high);
    payload_ = payload.Take();
    return Make(ChunkKind::kManifest, 0, manifest_.size(), AsBytes(payload_));
  }
  const Ranges& held = held_.files[0];
  manifest_offset_ = held.NextMissing(manifest_offset_);
  if (manifest_offset_ >= manifest_.size()) return std::nullopt;
  const std::uint64_t end = held.NextHeld(manifest_offset_, manifest_.size());
  const std::size_t size = std::min<std::uint64_t>(kMaxPayloadBytes, end - manifest_offset_);
  const std::uint64_t offset = std::exchange(manifest_offset_, manifest_offset_ + size);
  return Make(ChunkKind::kData, offset, 0, AsBytes(manifest_).subspan(offset, size));
}

Result<> SendImage(const WriteAll& write, RankImage* image, const RankHoldings& held,
                   std::uint64_t* bytes_sent) {
  Source source(image, held);
  for (;;) {
    XMPI_ASSIGN_OR_RETURN(const std::optional<Chunk> chunk, source.Next());
    if (!chunk) break;
    XMPI_RETURN_IF_ERROR(WriteChunk(write, chunk->header, chunk->payload));
  }
  if (bytes_sent != nullptr) *bytes_sent += source.bytes_sent();
  return {};
}

Result<> SendBegin(const WriteAll& write, const Begin& begin) {
  const std::string payload = EncodeBegin(begin);
  const ChunkHeader header{.kind = ChunkKind::kBegin,
                           .length = static_cast<std::uint32_t>(payload.size())};
  return WriteChunk(write, header, AsBytes(payload));
}

Result<> SendEnd(const WriteAll& write, std::uint64_t sent_bytes) {
  return WriteChunk(write, {.kind = ChunkKind::kEnd, .total = sent_bytes}, {});
}

Result<> SendWait(const WriteAll& write) {
  return WriteChunk(write, ChunkHeader{.kind = ChunkKind::kWait}, {});
}

Result<Holdings> ReceiveHoldings(const ReadAll& read) {
  std::vector<std::byte> buffer(kMaxPayloadBytes);
  XMPI_ASSIGN_OR_RETURN(const Chunk chunk, ReadChunk(read, buffer));
  if (chunk.header.kind == ChunkKind::kHolds) return DecodeHoldings(chunk.payload);
  if (chunk.header.kind == ChunkKind::kRefused)
    return Fail(ErrorCode::kRefused, std::string(AsText(chunk.payload)));
  return Fail(ErrorCode::kProtocol, "the target did not say what it holds");
}

Result<std::vector<Seen>> AskSights(const ReadAll& read, const WriteAll& write,
                                    const std::vector<HeldFile>& files) {
  const std::string question = EncodeHeldFiles(files);
  if (files.size() > kMaxHeldFiles || question.size() > kMaxPayloadBytes)
    return Fail(ErrorCode::kRefused,
                std::format("the ranks hold {} files, too many to ask for", files.size()));
  XMPI_RETURN_IF_ERROR(WriteChunk(
      write, {.kind = ChunkKind::kFiles, .length = static_cast<std::uint32_t>(question.size())},
      AsBytes(question)));
  std::vector<std::byte> buffer(kMaxPayloadBytes);
  XMPI_ASSIGN_OR_RETURN(const Chunk chunk, ReadChunk(read, buffer));
  if (chunk.header.kind == ChunkKind::kRefused)
    return Fail(ErrorCode::kRefused, std::string(AsText(chunk.payload)));
  if (chunk.header.kind != ChunkKind::kSights)
    return Fail(ErrorCode::kProtocol, "the target did not say which files it sees");
  XMPI_ASSIGN_OR_RETURN(std::vector<Seen> sights, DecodeSights(AsText(chunk.payload)));
  if (sights.size() != files.size())
    return Fail(ErrorCode::kProtocol, "the target speaks of other files than it was asked for");
  return sights;
}

Result<> ReceiveVerdict(const ReadAll& read) {
  std::vector<std::byte> buffer(kMaxPayloadBytes);
  XMPI_ASSIGN_OR_RETURN(const Chunk chunk, ReadChunk(read, buffer));
  if (chunk.header.kind == ChunkKind::kHeld) return {};
  if (chunk.header.kind == ChunkKind::kRefused) {
    return Fail(ErrorCode::kRefused, std::string(AsText(chunk.payload)));
  }
  return Fail(ErrorCode::kProtocol, "the target said neither that it holds the images nor why not");
}

namespace {

Result<> TakeFacts(const WriteAll& write, const Chunk& chunk, const AnswerFacts& answer,
                   MessageReader* facts) {
  if (!answer) return Fail(ErrorCode::kProtocol, "facts are not expected here");
  XMPI_ASSIGN_OR_RETURN(const bool whole, facts->Accept(chunk));
  if (!whole) return {};
  XMPI_ASSIGN_OR_RETURN(const std::string findings, answer(facts->text()));
  *facts = MessageReader();
  return SendMessage(write, ChunkKind::kFindings, findings);
}

Result<> AnswerFiles(const WriteAll& write, const LookAt& look, const Chunk& chunk) {
  if (!look) return Fail(ErrorCode::kProtocol, "a question about files at the wrong place");
  XMPI_ASSIGN_OR_RETURN(const std::vector<HeldFile> files, DecodeHeldFiles(AsText(chunk.payload)));
  const std::string answer = EncodeSights(look(files));
  return WriteChunk(
      write, {.kind = ChunkKind::kSights, .length = static_cast<std::uint32_t>(answer.size())},
      AsBytes(answer));
}

}  // namespace

Result<> Refuse(const WriteAll& write, const Error& error) {
  if (error.code == ErrorCode::kUnreachable) return {};
  const std::string_view why = std::string_view(error.message).substr(0, kMaxPayloadBytes);
  return WriteChunk(write,
                    {.kind = ChunkKind::kRefused, .length = static_cast<std::uint32_t>(why.size())},
                    AsBytes(why));
}

namespace {

Result<Begin> ExpectBegin(const ReadAll& read, const StreamId& expected) {
  std::vector<std::byte> buffer(kMaxPayloadBytes);
  XMPI_ASSIGN_OR_RETURN(const Chunk chunk, ReadChunk(read, buffer));
  if (chunk.header.kind != ChunkKind::kBegin)
    return Fail(ErrorCode::kProtocol, "an image connection that does not say what it is");
  XMPI_ASSIGN_OR_RETURN(const Begin begin, DecodeBegin(chunk.payload));
  const StreamId& id = begin.stream;
  if (id == expected) return begin;
  return Fail(ErrorCode::kProtocol,
              std::format("images of slot {} epoch {} migration {} attempt {} came to slot {} "
                          "epoch {} migration {} attempt {}",
                          id.slot, id.epoch, id.migration, id.attempt, expected.slot,
                          expected.epoch, expected.migration, expected.attempt));
}

// What a chunk on the control connection asks for.
Result<> TakeChunk(const WriteAll& write, const Chunk& chunk, Assembler* assembler,
                   const Answers& answers, MessageReader* facts) {
  switch (chunk.header.kind) {
    case ChunkKind::kFacts:
      return TakeFacts(write, chunk, answers.facts, facts);
    case ChunkKind::kFiles:
      return AnswerFiles(write, answers.look, chunk);
    default:
      return assembler->Accept(chunk);
  }
}

}  // namespace

Result<Begin> ReceiveBegin(const ReadAll& read, const WriteAll& write, const StreamId& expected) {
  Result<Begin> begin = ExpectBegin(read, expected);
  if (!begin) XMPI_RETURN_IF_ERROR(Refuse(write, begin.error()));
  return begin;
}

Result<> ReceiveImages(const ReadAll& read, const WriteAll& write, Assembler* assembler,
                       const Answers& answers) {
  const std::string holds = EncodeHoldings(assembler->Holds());
  if (holds.size() > kMaxPayloadBytes) return Fail("what is held is too much to tell");
  XMPI_RETURN_IF_ERROR(WriteChunk(
      write, {.kind = ChunkKind::kHolds, .length = static_cast<std::uint32_t>(holds.size())},
      AsBytes(holds)));
  assembler->OnConnected();
  std::vector<std::byte> buffer(kMaxPayloadBytes);
  Result<> taken;
  MessageReader facts;
  while (taken && !assembler->ended()) {
    Result<Chunk> chunk = ReadChunk(read, buffer);
    if (!chunk && chunk.error().code != ErrorCode::kProtocol) {
      return std::unexpected(chunk.error());
    }
    taken = chunk ? TakeChunk(write, *chunk, assembler, answers, &facts)
                  : std::unexpected(chunk.error());
  }
  if (taken && !assembler->complete()) {
    taken = Fail(ErrorCode::kProtocol, "the stream ended before every image was whole");
  }
  if (taken) return WriteChunk(write, ChunkHeader{.kind = ChunkKind::kHeld}, {});
  // Damaged on the way: without a verdict the source comes again, with what is missing now.
  XMPI_RETURN_IF_ERROR(Refuse(write, taken.error()));
  return taken;
}

}  // namespace xmpi::image
