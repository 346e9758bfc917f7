#include "proxy/cores.h"

#include <fcntl.h>
#include <hwloc.h>
#include <sys/file.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <format>
#include <fstream>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>

namespace xmpi::proxy {
namespace {

CpuList ListOf(hwloc_const_bitmap_t set) {
  CpuList list;
  for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu))
    list.push_back(cpu);
  return list;
}

// The cores on which this process may run, each with all of its hardware threads.
Result<std::vector<CpuList>> CoresHere() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Fail("hwloc cannot start");
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> topology(
      raw, &hwloc_topology_destroy);
  if (hwloc_topology_load(raw) != 0) return Fail("hwloc cannot read this node's topology");
  std::vector<CpuList> cores;
  const int count = hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_CORE);
  for (int i = 0; i < count; ++i)
    cores.push_back(
        ListOf(hwloc_get_obj_by_type(raw, HWLOC_OBJ_CORE, static_cast<unsigned>(i))->cpuset));
  if (cores.empty()) return Fail("hwloc finds no core on this node");
  return cores;
}

// The CPUs of every process of the node that has not ended.
std::vector<CpuList> BoundProcesses() {
  std::vector<CpuList> bound;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    if (std::atoi(entry.path().filename().c_str()) <= 0) continue;
    std::ifstream status(entry.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("State:") && line.contains('Z')) break;
      if (!line.starts_with("Cpus_allowed_list:")) continue;
      bound.push_back(ParseCpuList(line.c_str() + line.find(':') + 1));
    }
  }
  return bound;
}

}  // namespace

CpuList ParseCpuList(const char* text) {
  CpuList list;
  while (*text != '\0') {
    char* end = nullptr;
    const long first = std::strtol(text, &end, 10);
    if (end == text) break;
    long last = first;
    if (*end == '-') last = std::strtol(end + 1, &end, 10);
    for (long cpu = first; cpu <= last; ++cpu) list.push_back(static_cast<int>(cpu));
    text = *end == ',' ? end + 1 : end;
  }
  return list;
}

std::vector<int> LoadOf(const std::vector<CpuList>& cores, const std::vector<CpuList>& bound) {
  std::set<int> all;
  for (const CpuList& core : cores) all.insert(core.begin(), core.end());
  std::vector<int> load(cores.size(), 0);
  for (const CpuList& process : bound) {
    const std::set<int> mine(process.begin(), process.end());
    if (std::ranges::includes(mine, all)) continue;
    for (std::size_t i = 0; i < cores.size(); ++i) {
      const bool on = std::ranges::any_of(cores[i], [&](int cpu) { return mine.contains(cpu); });
      if (on) ++load[i];
    }
  }
  return load;
}

std::vector<CpuList> ChooseCores(const std::vector<CpuList>& cores, std::vector<int> load,
                                 std::size_t ranks) {
  std::vector<CpuList> chosen;
  std::vector<int> ours(cores.size(), 0);
  std::vector<std::size_t> indices(cores.size());
  std::iota(indices.begin(), indices.end(), 0);
  while (chosen.size() < ranks) {
    // Of equally loaded ones one that none of ours has.
    const std::size_t least =
        std::ranges::min(indices, {}, [&](std::size_t i) { return std::pair(load[i], ours[i]); });
    chosen.push_back(cores[least]);
    ++load[least];
    ++ours[least];
  }
  return chosen;
}

Result<CoreChoice> ChooseCoresHere(const std::string& bind_to, std::size_t ranks) {
  CoreChoice choice{.cpus = std::vector<CpuList>(ranks), .lock = Fd()};
  if (bind_to.empty() || bind_to == "none") return choice;
  if (bind_to != "core") return Fail(std::format("cannot bind ranks to '{}'", bind_to));
  XMPI_ASSIGN_OR_RETURN(const std::vector<CpuList> cores, CoresHere());
  // All proxies of a node are the same program, so its file is a lock that leaves nothing behind.
  choice.lock = Fd(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  if (choice.lock) flock(choice.lock.get(), LOCK_EX);
  choice.cpus = ChooseCores(cores, LoadOf(cores, BoundProcesses()), ranks);
  return choice;
}

}  // namespace xmpi::proxy
