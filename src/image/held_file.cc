#include "image/held_file.h"

#include <utility>

namespace xmpi::image {
namespace {

void PutState(ByteWriter& out, const FileState& state) {
  out.Put(state.inode);
  out.Put(state.size);
  out.Put(state.modified_ns);
  out.Put(state.changed_ns);
}

FileState GetState(ByteReader& in) {
  FileState state;
  state.inode = in.Get<std::uint64_t>();
  state.size = in.Get<std::uint64_t>();
  state.modified_ns = in.Get<std::uint64_t>();
  state.changed_ns = in.Get<std::uint64_t>();
  return state;
}

void PutHeldFile(ByteWriter& out, const HeldFile& file) {
  out.Put(file.rank);
  out.PutString(file.path);
  out.Put(static_cast<std::uint8_t>(file.use));
  out.Put(static_cast<std::uint8_t>(file.shared | file.memory << 1 | file.locked << 2));
  out.PutString(file.file_system);
  out.PutString(file.kernel);
  out.Put(file.device);
  out.Put(file.mode);
  out.Put(file.user);
  out.Put(file.group);
  PutState(out, file.state);
  out.Put(static_cast<std::uint32_t>(file.earlier.size()));
  for (const FileState& state : file.earlier) PutState(out, state);
  out.PutString(file.content);
}

HeldFile GetHeldFile(ByteReader& in, bool* good) {
  HeldFile file;
  file.rank = in.Get<std::uint32_t>();
  file.path = in.GetString(kMaxPathBytes);
  const auto use = in.Get<std::uint8_t>();
  file.use = static_cast<FileUse>(use);
  const auto flags = in.Get<std::uint8_t>();
  file.shared = flags & 1;
  file.memory = flags & 2;
  file.locked = flags & 4;
  file.file_system = in.GetString(64);
  file.kernel = in.GetString(64);
  file.device = in.Get<std::uint64_t>();
  file.mode = in.Get<std::uint32_t>();
  file.user = in.Get<std::uint32_t>();
  file.group = in.Get<std::uint32_t>();
  file.state = GetState(in);
  file.earlier.resize(in.GetCount(kMaxEarlierStates, 32));
  for (FileState& state : file.earlier) state = GetState(in);
  file.content = in.GetString(kMaxFileNameBytes);
  const bool plain = file.content.empty() || IsPlainFileName(file.content);
  *good = *good && file.path.starts_with('/') && !file.path.contains('\0') && use >= 1 &&
          use <= static_cast<std::uint8_t>(FileUse::kDeleted) && flags < 8 && plain;
  return file;
}

}  // namespace

void PutHeldFiles(ByteWriter& out, const std::vector<HeldFile>& files) {
  out.Put(static_cast<std::uint32_t>(files.size()));
  for (const HeldFile& file : files) PutHeldFile(out, file);
}

std::vector<HeldFile> GetHeldFiles(ByteReader& in, bool* good) {
  std::vector<HeldFile> files(in.GetCount(kMaxHeldFiles, 82));
  for (HeldFile& file : files) file = GetHeldFile(in, good);
  return files;
}

std::string EncodeHeldFiles(const std::vector<HeldFile>& files) {
  ByteWriter out;
  PutHeldFiles(out, files);
  return out.Take();
}

Result<std::vector<HeldFile>> DecodeHeldFiles(std::string_view bytes) {
  ByteReader in(bytes);
  bool good = true;
  std::vector<HeldFile> files = GetHeldFiles(in, &good);
  if (!good || !in.AtEnd()) return Fail(ErrorCode::kProtocol, "malformed list of held files");
  return files;
}

std::string EncodeSights(const std::vector<Seen>& sights) {
  ByteWriter out;
  out.Put(static_cast<std::uint32_t>(sights.size()));
  for (const Seen& seen : sights) {
    out.Put(static_cast<std::uint8_t>(seen.sight));
    out.Put(seen.hash.low);
    out.Put(seen.hash.high);
  }
  return out.Take();
}

Result<std::vector<Seen>> DecodeSights(std::string_view bytes) {
  ByteReader in(bytes);
  std::vector<Seen> sights(in.GetCount(kMaxHeldFiles, 17));
  bool good = true;
  for (Seen& seen : sights) {
    const auto sight = in.Get<std::uint8_t>();
    good = good && sight >= 1 && sight <= static_cast<std::uint8_t>(Sight::kPerhaps);
    seen.sight = static_cast<Sight>(sight);
    seen.hash.low = in.Get<std::uint64_t>();
    seen.hash.high = in.Get<std::uint64_t>();
  }
  if (!good || !in.AtEnd()) return Fail(ErrorCode::kProtocol, "malformed list of sights");
  return sights;
}

}  // namespace xmpi::image
