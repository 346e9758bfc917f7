// CPU baselines: the microarchitecture levels of x86-64, what each has, and how to keep libc from
// choosing code for anything beyond one. Pure; a table.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace xmpi::preflight {

// The least microarchitecture level that has an extension; what no level has is beyond all of them.
constexpr int kBeyond = 9;

struct Extension {
  std::string_view flag;    // /proc/cpuinfo's
  std::string_view hwcaps;  // glibc's name for it in glibc.cpu.hwcaps; empty: it has none
  int level;                // 1: every x86-64
};

// Every user-visible extension there is a name for.
std::span<const Extension> Extensions();
// 2, 3 or 4; kBeyond for a name that is no baseline: everything may be in use.
int LevelOf(std::string_view baseline);

// x86-64-v2, -v3 or -v4.
bool IsBaseline(std::string_view name);
std::string BaselineNames();
// The value of glibc's tunable glibc.cpu.hwcaps that keeps libc from choosing anything beyond it.
std::string HwcapsMask(std::string_view baseline);
// GLIBC_TUNABLES with that mask in it; what `given` says about other tunables stays, and what it
// masks itself stays masked.
std::string MergeTunables(std::string_view given, std::string_view baseline);

// The environment variable that tells a rank's proxies of the baseline it was started with.
inline constexpr const char* kBaselineVariable = "XMPI_CPU_BASELINE";

}  // namespace xmpi::preflight
