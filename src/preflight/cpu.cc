#include "preflight/cpu.h"

#include <array>
#include <cstdint>
#include <set>

#include "preflight/baseline.h"

namespace xmpi::preflight {
namespace {

struct State {
  std::uint64_t bits;  // of XCR0
  std::string_view name;
  int level;
};
constexpr std::array kStates = {
    State{0x4, "AVX", 3},
    State{0xe0, "AVX-512", 4},
    State{0x200, "protection keys", kBeyond},
    State{0x60000, "AMX", kBeyond},
    State{0x80000, "APX", kBeyond},
};

std::set<std::string, std::less<>> FlagsOf(const wire::CpuFacts& cpu) {
  return {cpu.flags().begin(), cpu.flags().end()};
}

}  // namespace

std::vector<std::string> UsableExtensions(const wire::CpuFacts& cpu) {
  const auto flags = FlagsOf(cpu);
  std::vector<std::string> usable;
  for (const Extension& each : Extensions()) {
    if (flags.contains(each.flag)) usable.emplace_back(each.flag);
  }
  return usable;
}

std::vector<std::string> AllExtensions() {
  std::vector<std::string> all;
  for (const Extension& each : Extensions()) all.emplace_back(each.flag);
  return all;
}

std::vector<std::string> MissingExtensions(const wire::CpuFacts& source,
                                           const wire::CpuFacts& target,
                                           std::string_view baseline) {
  const auto here = FlagsOf(source), there = FlagsOf(target);
  std::vector<std::string> missing;
  for (const Extension& each : Extensions()) {
    const bool used = each.level <= LevelOf(baseline);
    if (used && here.contains(each.flag) && !there.contains(each.flag))
      missing.emplace_back(each.flag);
  }
  return missing;
}

std::vector<std::string> MissingState(const wire::CpuFacts& source, const wire::CpuFacts& target,
                                      std::string_view baseline) {
  std::vector<std::string> missing;
  for (const State& each : kStates) {
    if (each.level <= LevelOf(baseline) && (source.xcr0() & ~target.xcr0() & each.bits) != 0)
      missing.emplace_back(each.name);
  }
  return missing;
}

}  // namespace xmpi::preflight
