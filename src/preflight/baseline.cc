#include "preflight/baseline.h"

#include <algorithm>
#include <array>
#include <format>
#include <set>
#include <vector>

namespace xmpi::preflight {
namespace {

// glibc reads the names of glibc.cpu.hwcaps from a list of its own; one that it does not know would
// be ignored in silence. cpu_test asks the real ld.so.
constexpr std::array kExtensions = {
    // x86-64-v2, which no baseline masks.
    Extension{"cx16", "", 2},
    Extension{"lahf_lm", "", 2},
    Extension{"popcnt", "", 2},
    Extension{"pni", "", 2},
    Extension{"ssse3", "", 2},
    Extension{"sse4_1", "", 2},
    Extension{"sse4_2", "", 2},
    // x86-64-v3
    Extension{"avx", "AVX", 3},
    Extension{"avx2", "AVX2", 3},
    Extension{"bmi1", "BMI1", 3},
    Extension{"bmi2", "BMI2", 3},
    Extension{"f16c", "", 3},
    Extension{"fma", "FMA", 3},
    Extension{"abm", "LZCNT", 3},
    Extension{"movbe", "MOVBE", 3},
    // x86-64-v4
    Extension{"avx512f", "AVX512F", 4},
    Extension{"avx512bw", "AVX512BW", 4},
    Extension{"avx512cd", "AVX512CD", 4},
    Extension{"avx512dq", "AVX512DQ", 4},
    Extension{"avx512vl", "AVX512VL", 4},
    // XSAVE is what carries AVX's registers: libc uses XSAVEC in its symbol resolver.
    Extension{"xsave", "", 3},
    Extension{"xsavec", "XSAVEC", 3},
    Extension{"xsaveopt", "", 3},
    Extension{"xgetbv1", "", 3},
    // Beyond any level.
    Extension{"avx512er", "AVX512ER", kBeyond},
    Extension{"avx512pf", "AVX512PF", kBeyond},
    Extension{"avx512ifma", "", kBeyond},
    Extension{"avx512vbmi", "", kBeyond},
    Extension{"avx512_vbmi2", "", kBeyond},
    Extension{"avx512_vnni", "", kBeyond},
    Extension{"avx512_bitalg", "", kBeyond},
    Extension{"avx512_vpopcntdq", "", kBeyond},
    Extension{"avx512_4vnniw", "", kBeyond},
    Extension{"avx512_4fmaps", "", kBeyond},
    Extension{"avx512_vp2intersect", "", kBeyond},
    Extension{"avx512_bf16", "", kBeyond},
    Extension{"avx512_fp16", "", kBeyond},
    Extension{"avx_vnni", "", kBeyond},
    Extension{"avx_vnni_int8", "", kBeyond},
    Extension{"avx_vnni_int16", "", kBeyond},
    Extension{"avx_ifma", "", kBeyond},
    Extension{"avx_ne_convert", "", kBeyond},
    Extension{"avx10", "", kBeyond},
    Extension{"amx_tile", "", kBeyond},
    Extension{"amx_int8", "", kBeyond},
    Extension{"amx_bf16", "", kBeyond},
    Extension{"amx_fp16", "", kBeyond},
    Extension{"amx_complex", "", kBeyond},
    Extension{"apx", "", kBeyond},
    Extension{"aes", "", kBeyond},
    Extension{"pclmulqdq", "", kBeyond},
    Extension{"vaes", "", kBeyond},
    Extension{"vpclmulqdq", "", kBeyond},
    Extension{"gfni", "", kBeyond},
    Extension{"sha_ni", "", kBeyond},
    Extension{"sha512", "", kBeyond},
    Extension{"sm3", "", kBeyond},
    Extension{"sm4", "", kBeyond},
    Extension{"adx", "", kBeyond},
    Extension{"rdrand", "", kBeyond},
    Extension{"rdseed", "", kBeyond},
    Extension{"rdpid", "", kBeyond},
    Extension{"rdtscp", "", kBeyond},
    Extension{"fsgsbase", "", kBeyond},
    Extension{"rtm", "RTM", kBeyond},
    Extension{"clflushopt", "", kBeyond},
    Extension{"clwb", "", kBeyond},
    Extension{"clzero", "", kBeyond},
    Extension{"cmpccxadd", "", kBeyond},
    Extension{"raoint", "", kBeyond},
    Extension{"movdiri", "", kBeyond},
    Extension{"movdir64b", "", kBeyond},
    Extension{"enqcmd", "", kBeyond},
    Extension{"serialize", "", kBeyond},
    Extension{"waitpkg", "", kBeyond},
    Extension{"monitorx", "", kBeyond},
    Extension{"mwaitx", "", kBeyond},
    Extension{"ospke", "", kBeyond},
    Extension{"ptwrite", "", kBeyond},
    Extension{"tsxldtrk", "", kBeyond},
    Extension{"rdpru", "", kBeyond},
    Extension{"sse4a", "", kBeyond},
    Extension{"xop", "", kBeyond},
    Extension{"fma4", "FMA4", kBeyond},
    Extension{"tbm", "", kBeyond},
    Extension{"lwp", "", kBeyond},
    Extension{"3dnow", "", kBeyond},
    Extension{"3dnowext", "", kBeyond},
    Extension{"user_shstk", "", kBeyond},
};

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

}  // namespace

std::span<const Extension> Extensions() { return kExtensions; }

int LevelOf(std::string_view baseline) {
  if (baseline == "x86-64-v2") return 2;
  if (baseline == "x86-64-v3") return 3;
  if (baseline == "x86-64-v4") return 4;
  return kBeyond;
}

bool IsBaseline(std::string_view name) { return LevelOf(name) != kBeyond; }

std::string BaselineNames() { return "x86-64-v2, x86-64-v3 and x86-64-v4"; }

std::string HwcapsMask(std::string_view baseline) {
  std::string mask;
  for (const Extension& each : kExtensions) {
    if (each.level > LevelOf(baseline) && !each.hwcaps.empty())
      mask += std::format("{}-{}", mask.empty() ? "" : ",", each.hwcaps);
  }
  return mask;
}

std::string MergeTunables(std::string_view given, std::string_view baseline) {
  constexpr std::string_view kHwcaps = "glibc.cpu.hwcaps=";
  std::string others, masks = HwcapsMask(baseline);
  std::set<std::string> known;
  for (const std::string& mask : Split(masks, ',')) known.insert(mask.substr(1));
  for (const std::string& tunable : Split(given, ':')) {
    if (!tunable.starts_with(kHwcaps)) {
      others += (others.empty() ? "" : ":") + tunable;
      continue;
    }
    for (const std::string& word : Split(std::string_view(tunable).substr(kHwcaps.size()), ',')) {
      const std::string name = word.starts_with('-') ? word.substr(1) : word;
      if (known.insert(name).second) masks += "," + word;
    }
  }
  return std::format("{}{}{}{}", others, others.empty() ? "" : ":", kHwcaps, masks);
}

}  // namespace xmpi::preflight
