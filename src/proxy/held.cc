#include "proxy/held.h"

#include <fcntl.h>

#include <algorithm>
#include <format>
#include <utility>

#include "base/fd.h"
#include "criu/criu_checkpointer.h"
#include "image/hash.h"
#include "os/proc.h"
#include "preflight/compare.h"
#include "preflight/rank_facts.h"

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

const char* IsUsed(FileUse use) {
  switch (use) {
    case FileUse::kWritten:
      return "is open for writing";
    case FileUse::kMapped:
      return "is mapped";
    default:
      return "is open";
  }
}

// The link to a file without a name says so behind the one it had.
std::string NameOf(const HeldFile& file) {
  std::string name = file.path;
  if (name.ends_with(os::kDeleted)) name.resize(name.size() - os::kDeleted.size());
  return name;
}

struct Objection {
  std::string what, why, remedy;
};

// Empty: the file is not in the way.
Objection ObjectionTo(const HeldFile& file, bool same, Sight sight, const FileRules& rules) {
  const std::string used = std::format("{} {}", file.path, IsUsed(file.use));
  const std::string missing = std::format("{} and is not on {}", used, rules.target);
  if (file.use == FileUse::kDeleted) {
    if (file.state.size <= criu::kGhostLimitBytes) return {};
    return {
        std::format("the deleted file {} of {} bytes is open", NameOf(file), file.state.size),
        std::format("more than {} bytes of one do not travel in the image", criu::kGhostLimitBytes),
        "the program must close it before XMPI_Quiesce, or keep it under a name"};
  }
  if (same && file.locked)
    return {std::format("{} has a file lock", file.path),
            "its copy could not take it while the original has it",
            "the program must release it before XMPI_Quiesce"};
  if (same) return {};
  if (file.use == FileUse::kFolder)
    return {std::format("the folder {} is not on {}", file.path, rules.target),
            "a rank works in it or has it open", "make it there, or keep it on shared storage"};
  if (file.shared)
    return {missing, std::format("it is on shared storage ({})", file.file_system),
            std::format("mount that on {}", rules.target)};
  if (sight == Sight::kOther || sight == Sight::kPerhaps)
    return {std::format("{} and another file of that name is on {}", used, rules.target),
            "the rank's own would have to replace it",
            "remove it there, or keep the file on shared storage"};
  if (rules.carry) return {};
  return {missing,
          std::format("it is on {}'s own disk ({}), and -no-carry-files forbids to take it along",
                      rules.source, file.file_system),
          "keep it on storage that both nodes share, or close it before the move"};
}

// A deleted file that several ranks have: CRIU dumps them one by one, and there would be as many.
void RefuseSharedDeleted(const std::vector<HeldFile>& files, const FileRules& rules,
                         wire::Findings* findings) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::set<RankId>> ranks;
  for (const HeldFile& file : files) {
    if (file.use == FileUse::kDeleted) ranks[{file.device, file.state.inode}].insert(file.rank);
  }
  for (const HeldFile& file : files) {
    if (file.use != FileUse::kDeleted || ranks[{file.device, file.state.inode}].size() < 2)
      continue;
    preflight::RefuseRank(
        findings, rules.source, file.rank,
        std::format("a deleted file is open or mapped in several ranks: {}", NameOf(file)),
        "after the move each would have its own",
        "the program must close it before XMPI_Quiesce, or keep it under a name");
  }
}

}  // namespace

std::vector<HeldFile> HeldFiles(const std::map<RankId, Ranks::Process>& ranks,
                                criu::Checkpointer& checkpointer) {
  std::vector<HeldFile> files;
  for (const auto& [rank, process] : ranks) {
    for (HeldFile& file : checkpointer.HeldFiles(rank, process.pid)) {
      const bool travels = file.memory && file.use != FileUse::kDeleted;
      if (!travels && !preflight::IsMpisSharedMemory(file.path)) files.push_back(std::move(file));
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

FileVerdict JudgeSights(const std::vector<HeldFile>& files, const std::vector<Seen>& sights,
                        const FileRules& rules) {
  FileVerdict verdict;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const HeldFile& file = files[i];
    const Seen& seen = sights[i];
    const bool same = seen.sight == Sight::kSame ||
                      (seen.sight == Sight::kPerhaps && HasHash(file.path, seen.hash, rules));
    if (same) verdict.at_target.insert(file.path);
    Objection objection = ObjectionTo(file, same, seen.sight, rules);
    if (objection.what.empty()) continue;
    preflight::RefuseRank(&verdict.findings, rules.target, file.rank, std::move(objection.what),
                          std::move(objection.why), std::move(objection.remedy));
  }
  RefuseSharedDeleted(files, rules, &verdict.findings);
  return verdict;
}

}  // namespace xmpi::proxy
