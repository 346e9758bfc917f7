// What we ask of CRIU, as its RPC messages. Pure: one function per request, each option with its
// reason.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "criu_rpc.pb.h"
#include "image/manifest.h"

namespace xmpi::criu {

inline constexpr const char* kDumpLog = "dump.log";
inline constexpr const char* kRestoreLog = "restore.log";

rpc::criu_req DumpMessage(pid_t pid, std::span<const image::ManifestTie> ties, int log_level,
                          std::uint64_t ghost_limit_bytes);
// `inherited`: the tie and the number that its new descriptor has in the criu process.
rpc::criu_req RestoreMessage(std::span<const std::pair<image::ManifestTie, int>> inherited,
                             bool lazy_pages, int log_level);
rpc::criu_req VersionMessage();
rpc::criu_req FeatureMessage();

}  // namespace xmpi::criu
