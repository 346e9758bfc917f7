// Where the launcher of each job of this user can be talked to: Unix sockets JOB.sock, mode 0600,
// in a folder of mode 0700 that nobody else owns. A socket whose launcher is dead is removed by
// whoever finds it, and the folder with the last one. Only names and descriptors here; what is said
// is wire/ctl.h's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace xmpi::os {

// ${XDG_RUNTIME_DIR:-/tmp}/xmpi-UID, where a launcher listens. Who looks for jobs looks there, in
// /run/user/UID and in /tmp.
std::string ControlFolder();

// A listening socket under the job's name, non-blocking. Removes the file when it dies.
class ControlListener {
 public:
  // kRefused when a job of that name is running.
  static Result<ControlListener> Listen(std::string_view job);
  ControlListener(ControlListener&&) noexcept = default;
  ControlListener& operator=(ControlListener&&) = delete;
  ~ControlListener();

  const Fd& socket() const { return socket_; }
  const std::string& path() const { return path_; }

 private:
  ControlListener(Fd socket, std::string path);
  Fd socket_;
  std::string path_;
};

// A blocking connection to the launcher of `job`.
Result<Fd> ConnectControl(std::string_view job);
// The running jobs, by name; sockets of dead launchers are removed.
Result<std::vector<std::string>> ControlJobs();

// Whether the process at the other end is this user's (or root's).
bool PeerIsThisUser(const Fd& socket);

}  // namespace xmpi::os
