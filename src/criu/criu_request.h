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

// What holds for dump and restore alike.
struct CriuMode {
  int log_level = 2;
  bool unprivileged = false;  // criu has only the capabilities of its own file
};

rpc::criu_req DumpMessage(pid_t pid, std::span<const image::ManifestTie> ties, const CriuMode& mode,
                          std::uint64_t ghost_limit_bytes);
// `inherited`: the tie and the number that its new descriptor has in the criu process.
rpc::criu_req RestoreMessage(std::span<const std::pair<image::ManifestTie, int>> inherited,
                             bool lazy_pages, const CriuMode& mode);
rpc::criu_req VersionMessage();
rpc::criu_req FeatureMessage();
// Whether criu can work with the capabilities that it has; the last request of its process.
rpc::criu_req UnprivilegedCheckMessage();

}  // namespace xmpi::criu
