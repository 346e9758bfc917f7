// What a source asks its candidate of the files that its ranks hold, and what follows from the
// answer: which of them need not travel, or why the ranks cannot move. Reads /proc; changes
// nothing.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "criu/checkpointer.h"
#include "image/held_file.h"
#include "image/manifest.h"
#include "proxy/ranks.h"

namespace xmpi::proxy {

// Of all ranks. Not their shared memory, most of which is MPI's own and gone by the time of the
// dump.
std::vector<image::HeldFile> HeldFiles(const std::map<RankId, Ranks::Process>& ranks,
                                       criu::Checkpointer& checkpointer);

// Of ranks whose images are held here, to be sent on. Without their shared memory, which is theirs
// alone wherever they are.
std::vector<image::HeldFile> HeldFiles(const std::vector<image::RankImage>& images);
// By path, what those images bring.
std::map<std::string, image::Hash128> HashesOf(const std::vector<image::RankImage>& images);

struct FileRules {
  std::string source, target;  // nodes, for messages
  bool carry = true;           // else what would travel is refused
  std::map<std::string, image::Hash128> hashes{};  // else files are read for theirs
};

// The paths that the target has already; or every reason why not, joined.
Result<std::set<std::string>> JudgeSights(const std::vector<image::HeldFile>& files,
                                          const std::vector<image::Seen>& sights,
                                          const FileRules& rules);

}  // namespace xmpi::proxy
