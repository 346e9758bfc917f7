// dump: every rank of the slot, in parallel, each image handed to the transfer as soon as it is
// made. The originals stay stopped.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "criu/checkpointer.h"
#include "image/manifest.h"
#include "proxy/ranks.h"
#include "wire/control.pb.h"

namespace xmpi::proxy {

// `done` gets every rank's image with rank, bytes and dump_us set, or the first failure.
// `on_image` gets each image; then `done` runs once, when no dump is under way any more: whatever
// the caller does to the originals after it cannot cross a dump.
void DumpRanks(const std::map<RankId, Ranks::Process>& ranks, criu::Checkpointer* checkpointer,
               std::function<void(image::RankImage)> on_image,
               std::function<void(Result<std::vector<wire::RankImage>>)> done);

}  // namespace xmpi::proxy
