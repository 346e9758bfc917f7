#include "preflight/node_facts.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <format>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "os/proc.h"
#include "preflight/files.h"

namespace xmpi::preflight {
namespace {

using os::Field;
using os::KilobytesField;
using os::ReadText;

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

std::vector<std::string> Words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::set<std::string> HiddenFlags() {
  std::set<std::string> hidden;
  const char* variable = std::getenv("XMPI_CPU_WITHOUT");
  std::istringstream names(variable == nullptr ? "" : variable);
  for (std::string name; std::getline(names, name, ',');) hidden.insert(name);
  return hidden;
}

// A number, or kNoLimit for cgroup's "max" and for what is not there.
std::uint64_t NumberIn(const std::string& file) {
  const std::string text = ReadText(file);
  std::uint64_t number = kNoLimit;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// A file of `Name value` lines, as of memory.stat.
std::uint64_t NumberOf(const std::string& file, const std::string& name) {
  std::ifstream lines(file);
  std::string key;
  for (std::uint64_t value = 0; lines >> key >> value;) {
    if (key == name) return value;
  }
  return 0;
}

struct Hierarchy {
  std::string mount;  // where its files are
  std::string path;   // ours below it
  bool unified = false;
};

// The cgroup file systems that bound memory: version 2, or version 1's memory controller.
std::vector<Hierarchy> MemoryHierarchies() {
  std::vector<Hierarchy> found;
  std::ifstream mounts("/proc/self/mounts");
  std::string ours_v1, ours_v2;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == ",,") ours_v2 = line.substr(second + 1);
    if (controllers.contains(",memory,")) ours_v1 = line.substr(second + 1);
  }
  for (std::string line; std::getline(mounts, line);) {
    const std::vector<std::string> words = Words(line);
    if (words.size() < 4) continue;
    if (words[2] == "cgroup2" && !ours_v2.empty()) found.push_back({words[1], ours_v2, true});
    if (words[2] == "cgroup" && ("," + words[3] + ",").contains(",memory,") && !ours_v1.empty())
      found.push_back({words[1], ours_v1, false});
  }
  return found;
}

// What one cgroup leaves: its limit less what it holds and cannot give back.
std::uint64_t RoomIn(const std::string& group, bool unified) {
  const std::uint64_t limit =
      NumberIn(group + (unified ? "/memory.max" : "/memory.limit_in_bytes"));
  const std::uint64_t used =
      NumberIn(group + (unified ? "/memory.current" : "/memory.usage_in_bytes"));
  if (limit == kNoLimit || used == kNoLimit) return kNoLimit;
  const std::uint64_t reclaimable =
      NumberOf(group + "/memory.stat", unified ? "inactive_file" : "total_inactive_file");
  const std::uint64_t held = used - std::min(used, reclaimable);
  return limit - std::min(limit, held);
}

void AddHugePages(wire::NodeFacts* facts) {
  constexpr const char* kFolder = "/sys/kernel/mm/hugepages";
  for (const std::uint64_t kilobytes : {64ull, 2048ull, 32768ull, 1048576ull}) {
    const std::uint64_t free =
        NumberIn(std::format("{}/hugepages-{}kB/free_hugepages", kFolder, kilobytes));
    if (free == kNoLimit) continue;
    facts->set_free_huge_bytes(facts->free_huge_bytes() + free * kilobytes * 1024);
  }
}

// libc and the MPI libraries by their usual places, so that nodes can be compared before a job.
void AddLibraries(wire::NodeFacts* facts) {
  Files files;
  const std::string triplet = facts->machine() + "-linux-gnu";
  for (const char* name : {"libc.so.6", "libmpich.so.12", "libmpi.so.12", "libmpi.so.40"}) {
    for (const std::string& folder : {"/lib/" + triplet, "/usr/lib/" + triplet,
                                      std::string("/lib64"), std::string("/usr/local/lib")}) {
      const wire::FileFacts& file = files.At(folder + "/" + name);
      if (!file.is_regular()) continue;
      *facts->add_libraries() = file;
      break;
    }
  }
}

std::int64_t NowUs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

}  // namespace

wire::CpuFacts LookAtCpu() {
  wire::CpuFacts cpu;
  const std::string info = ReadText("/proc/cpuinfo");
  cpu.set_model(Field(info, "model name"));
  const std::set<std::string> hidden = HiddenFlags();
  for (const std::string& flag : Words(Field(info, "flags"))) {
    if (!hidden.contains(flag)) cpu.add_flags(flag);
  }
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kOsXsave = 1u << 27;
  if (__get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kOsXsave) != 0) {
    unsigned low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    cpu.set_xcr0(static_cast<std::uint64_t>(high) << 32 | low);
    if (__get_cpuid_count(0xd, 0, &a, &b, &c, &d) != 0) cpu.set_xsave_bytes(b);
  }
#endif
  return cpu;
}

Room MemoryRoom() {
  Room room{KilobytesField(ReadText("/proc/meminfo"), "MemAvailable"), "the machine"};
  for (const Hierarchy& each : MemoryHierarchies()) {
    // Every group above ours counts too, as far up as this mount shows them.
    for (std::string path = each.path == "/" ? "" : each.path;;) {
      const std::string group = each.mount + path;
      const std::uint64_t bytes = RoomIn(group, each.unified);
      if (bytes < room.bytes) room = {bytes, "the cgroup " + group};
      if (path.empty() || path.find_last_of('/') == std::string::npos) break;
      path.resize(path.find_last_of('/'));
    }
  }
  return room;
}

wire::NodeFacts LookAtNode(const std::string& node, const std::string& version) {
  wire::NodeFacts facts;
  facts.set_node(node);
  facts.set_version(version);
  utsname name{};
  if (uname(&name) == 0) {
    facts.set_hostname(name.nodename);
    facts.set_kernel(name.release);
    facts.set_machine(name.machine);
  }
  *facts.mutable_cpu() = LookAtCpu();
  facts.set_memory_total_bytes(KilobytesField(ReadText("/proc/meminfo"), "MemTotal"));
  const Room room = MemoryRoom();
  facts.set_memory_room_bytes(room.bytes);
  facts.set_memory_bound(room.bound);
  facts.set_user(geteuid());
  facts.set_io_uring_disabled(NumberIn("/proc/sys/kernel/io_uring_disabled") == 2);
  AddHugePages(&facts);
  AddLibraries(&facts);
  facts.set_time_us(NowUs());
  return facts;
}

}  // namespace xmpi::preflight
