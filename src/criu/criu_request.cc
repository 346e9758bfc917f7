#include "criu/criu_request.h"

#include <format>

#include "criu/swrk.h"

namespace xmpi::criu {
namespace {

void SetCommon(rpc::criu_opts* opts, const CriuMode& mode) {
  // images_dir_fd would be looked up under the PID of the socket's maker, which is not in the
  // slot's PID namespace; the path is looked up by criu itself.
  opts->set_images_dir_fd(-1);
  opts->set_images_dir(std::format("/proc/self/fd/{}", kSwrkImagesFd));
  opts->set_log_level(mode.log_level);
  opts->set_unprivileged(mode.unprivileged);
  opts->set_manage_cgroups_mode(rpc::IGNORE);  // the target node's cgroups are its own affair
  opts->set_network_lock(rpc::SKIP);           // a parked rank has no connection to lock
  opts->set_file_locks(true);                  // each lock travels with the rank that holds it
}

}  // namespace

rpc::criu_req DumpMessage(pid_t pid, std::span<const image::ManifestTie> ties, const CriuMode& mode,
                          std::uint64_t ghost_limit_bytes) {
  rpc::criu_req request;
  request.set_type(rpc::DUMP);
  rpc::criu_opts* opts = request.mutable_opts();
  SetCommon(opts, mode);
  opts->set_pid(pid);
  opts->set_log_file(kDumpLog);
  opts->set_leave_stopped(true);  // a rank exists in at least one place until the copies run
  opts->set_ext_unix_sk(true);
  opts->mutable_ps()->set_fd(kSwrkPagesFd);  // see PageSink
  opts->set_ghost_limit(
      static_cast<std::uint32_t>(std::min<std::uint64_t>(ghost_limit_bytes, UINT32_MAX)));
  for (const image::ManifestTie& tie : ties) {
    if (!tie.is_pipe) opts->add_external(std::format("unix[{}]", tie.inode));
  }
  return request;
}

rpc::criu_req RestoreMessage(std::span<const std::pair<image::ManifestTie, int>> inherited,
                             bool lazy_pages, const CriuMode& mode) {
  rpc::criu_req request;
  request.set_type(rpc::RESTORE);
  rpc::criu_opts* opts = request.mutable_opts();
  SetCommon(opts, mode);
  opts->set_log_file(kRestoreLog);
  opts->set_lazy_pages(lazy_pages);  // see PageFill
  opts->set_rst_sibling(true);       // a child of criu's parent: the slot's init reaps it
  opts->set_ext_unix_sk(true);
  for (const auto& [tie, fd] : inherited) {
    rpc::inherit_fd* inherit = opts->add_inherit_fd();
    inherit->set_key(std::format("{}:[{}]", tie.is_pipe ? "pipe" : "socket", tie.inode));
    inherit->set_fd(fd);
  }
  return request;
}

rpc::criu_req VersionMessage() {
  rpc::criu_req request;
  request.set_type(rpc::VERSION);
  request.set_keep_open(true);
  return request;
}

rpc::criu_req FeatureMessage() {
  rpc::criu_req request;
  request.set_type(rpc::FEATURE_CHECK);
  request.set_keep_open(true);
  request.mutable_features()->set_lazy_pages(true);
  request.mutable_features()->set_pidfd_store(true);
  return request;
}

rpc::criu_req UnprivilegedCheckMessage() {
  rpc::criu_req request;
  request.set_type(rpc::CHECK);
  SetCommon(request.mutable_opts(), {.log_level = 1, .unprivileged = true});
  return request;
}

}  // namespace xmpi::criu
