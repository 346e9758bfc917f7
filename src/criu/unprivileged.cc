#include "criu/unprivileged.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <format>
#include <string>

#include "criu/criu_log.h"
#include "criu/criu_request.h"
#include "os/namespaces.h"

namespace xmpi::criu {
namespace {

// With CHECKPOINT_RESTORE it chooses PIDs and restores mappings; with SETPCAP it drops what the
// rank may never have had of its own (capabilities that are missing from the bounding set).
constexpr const char* kSetCapabilities = "setcap cap_checkpoint_restore,cap_setpcap+ep";

// Where the kernel has found it; a criu that has its capabilities hides that, and needs no remedy.
std::string ProgramOf(const Swrk& swrk) {
  const Result<pid_t> pid = os::HostPid(swrk.pidfd.get());
  std::error_code error;
  const std::string program =
      pid ? std::filesystem::read_symlink(std::format("/proc/{}/exe", *pid), error).string() : "";
  return program.empty() ? "/usr/sbin/criu" : program;
}

// Yama's level 1 lets only ancestors attach to a process, and criu is none of the rank's.
Result<> CheckYama() {
  const std::string scope = ReadFileAt(AT_FDCWD, "/proc/sys/kernel/yama/ptrace_scope");
  if (std::atoi(scope.c_str()) == 0) return {};
  return Fail(ErrorCode::kRefused,
              "kernel.yama.ptrace_scope keeps criu from the ranks of a plain user; run `sysctl "
              "kernel.yama.ptrace_scope=0` as root there, or start the job as root");
}

}  // namespace

Result<> CheckUnprivileged(const Swrk& swrk, std::chrono::steady_clock::time_point deadline) {
  const std::string program = ProgramOf(swrk);
  const Result<rpc::criu_resp> answer = Exchange(swrk, UnprivilegedCheckMessage(), deadline);
  if (answer && answer->success()) return CheckYama();
  const std::string cause = answer ? ErrorLines(answer->cr_errmsg()) : answer.error().message;
  return Fail(
      ErrorCode::kRefused,
      std::format("CRIU lacks privilege to dump and restore for user {}{}{}; run `{} {}` as "
                  "root there (`criu check --unprivileged` says why), or start the job as root",
                  geteuid(), cause.empty() ? "" : ": ", cause, kSetCapabilities, program));
}

}  // namespace xmpi::criu
