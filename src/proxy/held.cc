#include "proxy/held.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <format>
#include <utility>

#include "base/fd.h"
#include "criu/criu_checkpointer.h"
#include "image/hash.h"

namespace xmpi::proxy {
namespace {

using image::FileUse;
using image::HeldFile;
using image::Seen;
using image::Sight;

bool HasHash(const std::string& path, const image::Hash128& hash, const FileRules& rules) {
  const auto known = rules.hashes.find(path);
  if (known != rules.hashes.end()) return known->second == hash;
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  image::Hasher hasher;
  std::vector<std::byte> buffer(1u << 20);
  for (;;) {
    const ssize_t size = file ? read(file.get(), buffer.data(), buffer.size()) : -1;
    if (size < 0) return false;
    if (size == 0) return hasher.Digest() == hash;
    hasher.Update(std::span(buffer).first(static_cast<std::size_t>(size)));
  }
}

const char* Doing(FileUse use) {
  switch (use) {
    case FileUse::kWritten:
      return "has open for writing";
    case FileUse::kMapped:
      return "has mapped";
    case FileUse::kFolder:
      return "works in or has open";
    default:
      return "has open";
  }
}

// Empty: it can move.
std::string Objection(const HeldFile& file, bool same, Sight sight, const FileRules& rules) {
  const auto says = [&](const std::string& text) {
    return std::format("rank {} {} {}, {}", file.rank, Doing(file.use), file.path, text);
  };
  if (file.use == FileUse::kDeleted) {
    if (file.state.size <= criu::kGhostLimitBytes) return {};
    return says(std::format("of {} bytes: more than the {} that a deleted file may have",
                            file.state.size, criu::kGhostLimitBytes));
  }
  if (same && file.locked)
    return says(
        "with a file lock that its copy could not take while the original has it; "
        "the program must release it before XMPI_Quiesce");
  if (same) return {};
  if (file.use == FileUse::kFolder)
    return says(std::format("which is not on {}; make that folder there", rules.target));
  if (file.shared)
    return says(
        std::format("which is on shared storage ({}) but not seen on {}; is that mounted there?",
                    file.file_system, rules.target));
  if (sight == Sight::kOther || sight == Sight::kPerhaps)
    return says(
        std::format("and another file of that name is on {}; remove it there, or put the file on "
                    "shared storage",
                    rules.target));
  if (rules.carry) return {};
  return says(std::format(
      "which is on {}'s own disk ({}), and -no-carry-files forbids to take it along; put it on "
      "shared storage",
      rules.source, file.file_system));
}

}  // namespace

std::vector<HeldFile> HeldFiles(const std::map<RankId, Ranks::Process>& ranks,
                                criu::Checkpointer& checkpointer) {
  std::vector<HeldFile> files;
  for (const auto& [rank, process] : ranks) {
    for (HeldFile& file : checkpointer.HeldFiles(rank, process.pid)) {
      if (!file.path.starts_with("/dev/shm/")) files.push_back(std::move(file));
    }
  }
  return files;
}

std::vector<HeldFile> HeldFiles(const std::vector<image::RankImage>& images) {
  std::vector<HeldFile> files;
  for (const image::RankImage& image : images) {
    for (const HeldFile& file : image.manifest.held)
      if (!file.memory) files.push_back(file);
  }
  return files;
}

std::map<std::string, image::Hash128> HashesOf(const std::vector<image::RankImage>& images) {
  std::map<std::string, image::Hash128> hashes;
  for (const image::RankImage& image : images) {
    for (const HeldFile& file : image.manifest.held) {
      const auto content =
          std::ranges::find(image.manifest.files, file.content, &image::ManifestFile::name);
      if (content != image.manifest.files.end()) hashes[file.path] = content->hash;
    }
  }
  return hashes;
}

Result<std::set<std::string>> JudgeSights(const std::vector<HeldFile>& files,
                                          const std::vector<Seen>& sights, const FileRules& rules) {
  std::set<std::string> at_target;
  std::string reasons;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const HeldFile& file = files[i];
    const Seen& seen = sights[i];
    const bool same = seen.sight == Sight::kSame ||
                      (seen.sight == Sight::kPerhaps && HasHash(file.path, seen.hash, rules));
    if (same) at_target.insert(file.path);
    const std::string objection = Objection(file, same, seen.sight, rules);
    if (objection.empty() || reasons.contains(objection)) continue;
    reasons += (reasons.empty() ? "" : "; ") + objection;
  }
  if (!reasons.empty()) return Fail(ErrorCode::kRefused, reasons);
  return at_target;
}

}  // namespace xmpi::proxy
