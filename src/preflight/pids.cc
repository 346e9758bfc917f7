#include "preflight/pids.h"

#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <format>
#include <map>
#include <sstream>
#include <string>

#include "os/proc.h"

namespace xmpi::preflight {
namespace {

// Process groups and sessions that live on without the process they are named for: the number, and
// one of their processes.
std::map<std::uint32_t, std::uint32_t> GroupsAndSessions() {
  std::map<std::uint32_t, std::uint32_t> found;
  for (const int pid : os::Numbers("/proc")) {
    const std::string stat = os::ReadText(std::format("/proc/{}/stat", pid));
    std::istringstream rest(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
    std::string state;
    std::uint32_t parent = 0, group = 0, session = 0;
    if (!(rest >> state >> parent >> group >> session)) continue;
    found.emplace(group, pid);
    found.emplace(session, pid);
  }
  return found;
}

// A thread has a folder in /proc under its own number, which no listing shows.
wire::PidInUse UseOf(std::uint32_t number, std::uint32_t pid) {
  wire::PidInUse use;
  use.set_number(number);
  const std::string status = os::ReadText(std::format("/proc/{}/status", pid));
  use.set_process(os::Field(status, "Name"));
  use.set_pid(static_cast<std::uint32_t>(std::atoi(os::Field(status, "Tgid").c_str())));
  return use;
}

// Also what /proc hides from us (hidepid).
bool IsProcessOrThread(std::uint32_t number) {
  return kill(static_cast<pid_t>(number), 0) == 0 || errno != ESRCH;
}

}  // namespace

std::vector<wire::PidInUse> PidsInUse(std::span<const std::uint32_t> numbers) {
  const std::map<std::uint32_t, std::uint32_t> groups = GroupsAndSessions();
  std::vector<wire::PidInUse> uses;
  for (const std::uint32_t number : numbers) {
    const auto group = groups.find(number);
    if (IsProcessOrThread(number)) {
      uses.push_back(UseOf(number, number));
    } else if (group != groups.end()) {
      uses.push_back(UseOf(number, group->second));
    }
  }
  return uses;
}

std::string Describe(const wire::PidInUse& use) {
  if (use.pid() == 0)
    return std::format("PID {} is that of a process of another user", use.number());
  if (use.pid() == use.number())
    return std::format("PID {} is that of {}", use.number(), use.process());
  return std::format("PID {} is a thread, group or session of {} (PID {})", use.number(),
                     use.process(), use.pid());
}

}  // namespace xmpi::preflight
