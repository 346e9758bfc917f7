// dump: every rank of the slot, in parallel, each image handed to the transfer as soon as it is
// made. The originals stay stopped.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "criu/checkpointer.h"
#include "image/manifest.h"
#include "proxy/ranks.h"
#include "wire/control.pb.h"

namespace xmpi::proxy {

// What the target has already of the files that ranks hold, and whether the rest may travel.
struct FilePolicy {
  std::set<std::string> at_target{};
  bool carry = true;
};

// `facts`, one for each rank, travel with the images as their notes; `done` gets them with bytes
// set, or the first failure. `timeout` is CRIU's for each rank. `on_image` gets each image; then
// `done` runs once, when no dump is under way any more: whatever the caller does to the originals
// after it cannot cross a dump.
void DumpRanks(const std::map<RankId, Ranks::Process>& ranks,
               const std::vector<wire::RankImage>& facts, const FilePolicy& files,
               std::chrono::milliseconds timeout, criu::Checkpointer* checkpointer,
               std::function<void(image::RankImage)> on_image,
               std::function<void(Result<std::vector<wire::RankImage>>)> done);

// What travelled with an image; an Error if that is no note of this rank.
Result<wire::RankImage> FactsOf(RankId rank, const std::string& note);

}  // namespace xmpi::proxy
