#include "os/slot_child.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <vector>

namespace xmpi::os {
namespace {

[[noreturn]] void Give(const Fd& status, SpawnStage stage) {
  const ChildFailure failure{stage, errno};
  [[maybe_unused]] const ssize_t written = write(status.get(), &failure, sizeof(failure));
  _exit(127);
}

// What is ignored or blocked in the proxy must not be so in a rank.
void ResetSignals() {
  for (int signal = 1; signal < NSIG; ++signal) {
    if (signal != SIGKILL && signal != SIGSTOP) ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

bool BindSelf(const std::vector<int>& cpus) {
  if (cpus.empty()) return true;
  const auto count = static_cast<std::size_t>(*std::max_element(cpus.begin(), cpus.end())) + 1;
  cpu_set_t* set = CPU_ALLOC(count);
  const std::size_t size = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(size, set);
  for (int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), size, set);
  return sched_setaffinity(0, size, set) == 0;
}

// Puts each descriptor at its number. All of them first move above every number that is wanted, so
// that none is overwritten before it is placed; whatever else is open is close-on-exec.
SpawnStage PlaceDescriptors(const SpawnRequest& request, Fd& status) {
  int above = 3;
  for (const SpawnFd& fd : request.fds) above = std::max(above, fd.target + 1);
  status = Fd(fcntl(status.get(), F_DUPFD_CLOEXEC, above));
  if (!status) return SpawnStage::kDescriptors;
  std::vector<int> sources;
  for (const SpawnFd& fd : request.fds) {
    Fd opened;
    if (fd.fd < 0) {
      opened = Fd(open(fd.path.c_str(), fd.open_flags | O_CLOEXEC | O_NOCTTY, 0666));
      if (!opened) return SpawnStage::kOpen;
    }
    sources.push_back(fcntl(fd.fd < 0 ? opened.get() : fd.fd, F_DUPFD_CLOEXEC, above));
    if (sources.back() < 0) return SpawnStage::kDescriptors;
  }
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (dup2(sources[i], request.fds[i].target) < 0) return SpawnStage::kDescriptors;
  }
  return SpawnStage::kNone;
}

}  // namespace

void RunChild(const SpawnRequest& request, Fd status, bool die_with_parent) {
  ResetSignals();
  if (die_with_parent) prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (request.session_leader) setsid();
  if (!BindSelf(request.cpus)) Give(status, SpawnStage::kCpus);
  const char* cwd = request.cwd.empty() ? "/" : request.cwd.c_str();
  if (chdir(cwd) != 0) Give(status, SpawnStage::kCwd);
  const SpawnStage stage = PlaceDescriptors(request, status);
  if (stage != SpawnStage::kNone) Give(status, stage);

  std::vector<char*> argv, env;
  for (const std::string& word : request.argv) argv.push_back(const_cast<char*>(word.c_str()));
  for (const std::string& word : request.env) env.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  env.push_back(nullptr);
  environ = env.data();  // where execvp looks for PATH
  execvp(argv[0], argv.data());
  Give(status, SpawnStage::kExec);
}

}  // namespace xmpi::os
