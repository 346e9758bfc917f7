// What a source asks its candidate of the files that its ranks hold, and what follows from the
// answer: which of them need not travel, or why the ranks cannot move. Reads /proc; changes
// nothing.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "criu/checkpointer.h"
#include "image/held_file.h"
#include "image/manifest.h"
#include "proxy/ranks.h"
#include "wire/preflight.pb.h"

namespace xmpi::proxy {

// Of all ranks. Not what MPI has in /dev/shm, which is gone by the time of the dump, nor what else
// has a name there, which is the ranks' own wherever they are.
std::vector<image::HeldFile> HeldFiles(const std::map<RankId, Ranks::Process>& ranks,
                                       criu::Checkpointer& checkpointer);

// Of ranks whose images are held here, to be sent on. Without their shared memory, which is theirs
// alone wherever they are.
std::vector<image::HeldFile> HeldFiles(const std::vector<image::RankImage>& images);
// By path, what those images bring.
std::map<std::string, image::Hash128> HashesOf(const std::vector<image::RankImage>& images);

struct FileRules {
  std::string source, target;                      // nodes, for messages
  bool carry = true;                               // else what would travel is refused
  std::map<std::string, image::Hash128> hashes{};  // else files are read for theirs
};

struct FileVerdict {
  std::set<std::string> at_target{};  // paths of what the target has already
  wire::Findings findings{};          // refusals, in the order of the files
};
FileVerdict JudgeSights(const std::vector<image::HeldFile>& files,
                        const std::vector<image::Seen>& sights, const FileRules& rules);

}  // namespace xmpi::proxy
