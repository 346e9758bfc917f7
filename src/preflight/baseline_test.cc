// Baselines against the libc that is here: a name that it does not know it would ignore in silence.
#include "preflight/baseline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <format>
#include <iterator>
#include <string>

#include "preflight/cpu.h"

namespace xmpi::preflight {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string OutputOf(const std::string& command) {
  std::string text;
  FILE* const pipe = popen(command.c_str(), "r");
  for (int c = 0; pipe != nullptr && (c = std::getc(pipe)) != EOF;) text += static_cast<char>(c);
  if (pipe != nullptr) pclose(pipe);
  return text;
}

constexpr const char* kLoader = "/lib64/ld-linux-x86-64.so.2";

std::string LoaderUnder(const std::string& baseline, const std::string& option) {
  const std::string tunables = baseline.empty() ? "" : MergeTunables("", baseline);
  return OutputOf(std::format("GLIBC_TUNABLES={} {} {}", tunables, kLoader, option));
}

// Where libc's own diagnosis shows what it takes for usable: which leaf, register and bit.
struct Bit {
  std::string_view hwcaps;
  int leaf;
  int index;  // of the register: EAX, EBX, ECX, EDX
  int bit;
};
constexpr Bit kBits[] = {
    {"AVX", 0, 2, 28},      {"FMA", 0, 2, 12},      {"MOVBE", 0, 2, 22},    {"AVX2", 1, 1, 5},
    {"BMI1", 1, 1, 3},      {"BMI2", 1, 1, 8},      {"RTM", 1, 1, 11},      {"AVX512F", 1, 1, 16},
    {"AVX512DQ", 1, 1, 17}, {"AVX512PF", 1, 1, 26}, {"AVX512ER", 1, 1, 27}, {"AVX512CD", 1, 1, 28},
    {"AVX512BW", 1, 1, 30}, {"AVX512VL", 1, 1, 31}, {"LZCNT", 2, 2, 5},     {"FMA4", 2, 2, 16},
    {"XSAVEC", 3, 0, 1},
};

bool IsUsable(const std::string& diagnosis, const Bit& bit) {
  const std::string name =
      std::format("x86.cpu_features.features[0x{:x}].active[0x{:x}]=0x", bit.leaf, bit.index);
  const std::size_t at = diagnosis.find(name);
  EXPECT_NE(at, std::string::npos) << name;
  return at != std::string::npos &&
         (std::strtoul(diagnosis.c_str() + at + name.size(), nullptr, 16) >> bit.bit & 1) != 0;
}

TEST(Baseline, LibcSearchesNoLibrariesBeyondIt) {
  const std::string all = LoaderUnder("", "--help");
  if (!all.contains("x86-64-v4 (supported, searched)")) GTEST_SKIP() << "this CPU has no x86-64-v4";
  EXPECT_THAT(LoaderUnder("x86-64-v4", "--help"), HasSubstr("x86-64-v4 (supported, searched)"));
  EXPECT_THAT(LoaderUnder("x86-64-v3", "--help"), HasSubstr("x86-64-v3 (supported, searched)"));
  EXPECT_THAT(LoaderUnder("x86-64-v3", "--help"), Not(HasSubstr("x86-64-v4 (supported")));
  EXPECT_THAT(LoaderUnder("x86-64-v2", "--help"), HasSubstr("x86-64-v2 (supported, searched)"));
  EXPECT_THAT(LoaderUnder("x86-64-v2", "--help"), Not(HasSubstr("x86-64-v3 (supported")));
}

TEST(Baseline, LibcKnowsEveryNameOfTheMask) {
  const std::string before = LoaderUnder("", "--list-diagnostics");
  const std::string after = LoaderUnder("x86-64-v2", "--list-diagnostics");
  int masked = 0;
  for (const Extension& each : Extensions()) {
    if (each.hwcaps.empty()) continue;
    const auto bit = std::ranges::find(kBits, each.hwcaps, &Bit::hwcaps);
    ASSERT_NE(bit, std::end(kBits)) << each.hwcaps << " is not in the test's table";
    if (!IsUsable(before, *bit)) continue;
    EXPECT_FALSE(IsUsable(after, *bit)) << each.hwcaps << " masks nothing";
    ++masked;
  }
  EXPECT_GT(masked, 5);
}

TEST(Baseline, TunablesAreMerged) {
  const std::string mask = "glibc.cpu.hwcaps=" + HwcapsMask("x86-64-v4");
  EXPECT_EQ(MergeTunables("", "x86-64-v4"), mask);
  EXPECT_EQ(MergeTunables("glibc.malloc.check=3", "x86-64-v4"), "glibc.malloc.check=3:" + mask);
  EXPECT_EQ(MergeTunables("glibc.cpu.hwcaps=-AVX2:a=b", "x86-64-v4"), "a=b:" + mask + ",-AVX2");
  // What the baseline masks, nobody can turn on again.
  EXPECT_EQ(MergeTunables("glibc.cpu.hwcaps=RTM", "x86-64-v4"), mask);
}

TEST(Baseline, Names) {
  EXPECT_TRUE(IsBaseline("x86-64-v2"));
  EXPECT_FALSE(IsBaseline("x86-64"));
  EXPECT_FALSE(IsBaseline(""));
}

wire::CpuFacts Cpu(std::initializer_list<const char*> flags, std::uint64_t xcr0 = 0x7) {
  wire::CpuFacts cpu;
  for (const char* flag : flags) cpu.add_flags(flag);
  cpu.set_xcr0(xcr0);
  return cpu;
}

TEST(Cpu, OnlyWhatAProgramCanUseIsMissed) {
  const wire::CpuFacts full = Cpu({"sse4_2", "avx2", "avx512f", "aes", "smep", "arat", "erms"});
  EXPECT_THAT(MissingExtensions(full, Cpu({"sse4_2"}), ""), ElementsAre("avx2", "avx512f", "aes"));
  EXPECT_THAT(MissingExtensions(Cpu({"smep", "erms"}), Cpu({}), ""), ElementsAre());
  EXPECT_THAT(MissingExtensions(Cpu({"avx2"}), full, ""), ElementsAre());
}

TEST(Cpu, ABaselineLeavesOutWhatIsBeyondIt) {
  const wire::CpuFacts full = Cpu({"sse4_2", "avx2", "avx512f", "aes"}, 0xe7);
  EXPECT_THAT(MissingExtensions(full, Cpu({}), "x86-64-v4"),
              ElementsAre("sse4_2", "avx2", "avx512f"));
  EXPECT_THAT(MissingExtensions(full, Cpu({}), "x86-64-v3"), ElementsAre("sse4_2", "avx2"));
  EXPECT_THAT(MissingExtensions(full, Cpu({"sse4_2"}), "x86-64-v2"), ElementsAre());
  EXPECT_THAT(MissingState(full, Cpu({}, 0x3), ""), ElementsAre("AVX", "AVX-512"));
  EXPECT_THAT(MissingState(full, Cpu({}, 0x7), "x86-64-v3"), ElementsAre());
}

}  // namespace
}  // namespace xmpi::preflight
