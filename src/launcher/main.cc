// xmpiexec: reads the command line, makes the plan, runs the launcher.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "base/fault_points.h"
#include "base/log.h"
#include "launcher/hosts.h"
#include "launcher/launcher.h"
#include "launcher/options.h"
#include "launcher/plan.h"

extern char** environ;

namespace xmpi::launcher {
namespace {

// A standard stream that is closed would otherwise be the first socket we open.
void FillStandardStreams() {
  for (int fd = open("/dev/null", O_RDWR); fd >= 0 && fd <= STDERR_FILENO;)
    if ((fd = dup(fd)) > STDERR_FILENO) close(fd);
}

Surroundings LookAround() {
  Surroundings around{.pid = getpid()};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string::npos && equals != 0)
      around.environment.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  char name[256] = "localhost";
  gethostname(name, sizeof name - 1);
  around.hostname = name;
  if (char* folder = getcwd(nullptr, 0)) {
    around.working_directory = folder;
    free(folder);
  }
  return around;
}

Result<core::JobPlan> Plan(const Options& options) {
  std::vector<Host> hosts = options.hosts;
  if (!options.hostfile.empty()) {
    if (!hosts.empty())
      return Fail(ErrorCode::kUsage, "-hosts and -f both say where to run; give one of them");
    XMPI_ASSIGN_OR_RETURN(hosts, ReadHostfile(options.hostfile));
  }
  return MakePlan(options, hosts, LookAround());
}

int Complain(const Error& error) {
  std::fprintf(stderr, "xmpiexec: %s\n", error.message.c_str());
  return error.code == ErrorCode::kUsage ? kUsageExitCode : 1;
}

int Show(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return 0;
  return Complain(ErrnoError("standard output"));
}

constexpr char kVersionText[] =
    "xmpiexec " XMPI_VERSION
    "\n"
    "Runs programs of MPICH 4.2 or later (PMI-1). Ranks can move when the program is linked with\n"
    "libxmpi (MPI Sessions) and the hosts have CRIU 4.0 or later.\n";

int Main(std::span<char*> words, std::chrono::steady_clock::time_point began) {
  FillStandardStreams();
  if (!log::Init("xmpiexec"))
    std::fputs("xmpiexec: XMPI_LOG is none of debug, info, warn, error\n", stderr);
  if (auto armed = ArmFaultsFromEnvironment("launcher"); !armed) return Complain(armed.error());
  const std::vector<std::string> arguments(words.begin() + 1, words.end());
  const auto options = ParseOptions(arguments);
  if (!options) return Complain(options.error());
  if (options->mode == Options::Mode::kHelp) return Show(HelpText());
  if (options->mode == Options::Mode::kVersion) return Show(kVersionText);
  auto plan = Plan(*options);
  if (!plan) return Complain(plan.error());
  Launcher launcher(*options, std::move(*plan), began);
  if (auto opened = launcher.Open(); !opened) return Complain(opened.error());
  return launcher.Run();
}

}  // namespace
}  // namespace xmpi::launcher

int main(int argc, char** argv) {
  const auto began = std::chrono::steady_clock::now();
  return xmpi::launcher::Main({argv, static_cast<std::size_t>(argc)}, began);
}
