#include "image/manifest.h"

#include <algorithm>
#include <set>

#include "base/bytes.h"
#include "image/page_hashes.h"

namespace xmpi::image {
namespace {

bool IsTieKind(std::uint8_t kind) {
  return kind >= static_cast<std::uint8_t>(TieKind::kControl) &&
         kind <= static_cast<std::uint8_t>(TieKind::kStderr);
}

ManifestTie GetTie(ByteReader& in, bool* good) {
  ManifestTie tie;
  const std::uint8_t kind = in.Get<std::uint8_t>();
  const std::uint8_t is_pipe = in.Get<std::uint8_t>();
  *good = *good && IsTieKind(kind) && is_pipe <= 1;
  tie.kind = static_cast<TieKind>(kind);
  tie.is_pipe = is_pipe == 1;
  tie.inode = in.Get<std::uint64_t>();
  tie.unread = in.GetString(kMaxUnreadBytes);
  return tie;
}

ManifestFile GetFile(ByteReader& in, bool* good) {
  ManifestFile file;
  file.name = in.GetString(kMaxFileNameBytes);
  file.length = in.Get<std::uint64_t>();
  file.hash.low = in.Get<std::uint64_t>();
  file.hash.high = in.Get<std::uint64_t>();
  *good = *good && IsPlainFileName(file.name);
  return file;
}

void PutTask(ByteWriter& out, const TaskMemory& task) {
  out.Put(static_cast<std::uint32_t>(task.pid));
  out.Put(static_cast<std::uint32_t>(task.runs.size()));
  for (const PageRun& run : task.runs) {
    out.Put(run.address);
    out.Put(run.pages);
  }
  out.Put(task.digest.low);
  out.Put(task.digest.high);
}

TaskMemory GetTask(ByteReader& in, bool* good) {
  TaskMemory task;
  task.pid = static_cast<pid_t>(in.Get<std::uint32_t>());
  task.runs.resize(in.GetCount(kMaxManifestBytes / 16, 16));
  for (PageRun& run : task.runs) {
    run.address = in.Get<std::uint64_t>();
    run.pages = in.Get<std::uint64_t>();
  }
  task.digest.low = in.Get<std::uint64_t>();
  task.digest.high = in.Get<std::uint64_t>();
  *good = *good && task.pid > 0 && AreOrdered(task.runs);
  return task;
}

std::vector<TaskMemory> GetMemory(ByteReader& in, bool* good) {
  std::vector<TaskMemory> memory(in.GetCount(kMaxTasks, 24));
  std::set<pid_t> pids;
  for (TaskMemory& task : memory) {
    task = GetTask(in, good);
    *good = *good && pids.insert(task.pid).second;
  }
  return memory;
}

}  // namespace

const char* ToString(TieKind kind) {
  switch (kind) {
    case TieKind::kControl:
      return "control socket";
    case TieKind::kPmi:
      return "PMI socket";
    case TieKind::kStdin:
      return "stdin";
    case TieKind::kStdout:
      return "stdout";
    case TieKind::kStderr:
      return "stderr";
  }
  return "unknown descriptor";
}

bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxFileNameBytes && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

std::string Encode(const Manifest& manifest) {
  ByteWriter out;
  out.Put(manifest.rank);
  out.Put(static_cast<std::uint32_t>(manifest.pid));
  out.Put(static_cast<std::uint32_t>(manifest.used_pids.size()));
  for (pid_t pid : manifest.used_pids) out.Put(static_cast<std::uint32_t>(pid));
  out.Put(static_cast<std::uint32_t>(manifest.ties.size()));
  for (const ManifestTie& tie : manifest.ties) {
    out.Put(static_cast<std::uint8_t>(tie.kind));
    out.Put(static_cast<std::uint8_t>(tie.is_pipe));
    out.Put(tie.inode);
    out.PutString(tie.unread);
  }
  out.Put(static_cast<std::uint32_t>(manifest.files.size()));
  for (const ManifestFile& file : manifest.files) {
    out.PutString(file.name);
    out.Put(file.length);
    out.Put(file.hash.low);
    out.Put(file.hash.high);
  }
  out.PutString(manifest.note);
  PutHeldFiles(out, manifest.held);
  out.Put(static_cast<std::uint32_t>(manifest.memory.size()));
  for (const TaskMemory& task : manifest.memory) PutTask(out, task);
  return out.Take();
}

Result<Manifest> DecodeManifest(std::string_view bytes) {
  ByteReader in(bytes);
  bool good = true;
  Manifest manifest;
  manifest.rank = in.Get<std::uint32_t>();
  manifest.pid = static_cast<pid_t>(in.Get<std::uint32_t>());
  manifest.used_pids.resize(in.GetCount(kMaxUsedPids, 4));
  for (pid_t& pid : manifest.used_pids) {
    pid = static_cast<pid_t>(in.Get<std::uint32_t>());
    good = good && pid > 0;
  }
  manifest.ties.resize(in.GetCount(kMaxTies, 14));
  for (ManifestTie& tie : manifest.ties) tie = GetTie(in, &good);
  manifest.files.resize(in.GetCount(kMaxFiles, 28));
  std::set<std::string_view> names;
  for (ManifestFile& file : manifest.files) {
    file = GetFile(in, &good);
    good = good && names.insert(file.name).second;
  }
  manifest.note = in.GetString(kMaxNoteBytes);
  manifest.held = GetHeldFiles(in, &good);
  manifest.memory = GetMemory(in, &good);
  for (const HeldFile& file : manifest.held)
    good = good && (file.content.empty() || names.contains(file.content));
  if (!in.AtEnd() || !good || manifest.pid <= 0) {
    return Fail(ErrorCode::kProtocol, "malformed manifest of an image");
  }
  return manifest;
}

}  // namespace xmpi::image
