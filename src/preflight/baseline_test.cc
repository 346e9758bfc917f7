// Baselines against the libc that is here: a name that it does not know it would ignore in silence.
#include "preflight/baseline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <format>
#include <set>
#include <sstream>

#include "preflight/cpu.h"
#include "preflight/node_facts.h"

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

// The features that libc takes for usable, as words of its own diagnosis.
std::string UsableBits(const std::string& baseline) {
  std::string bits;
  std::istringstream lines(LoaderUnder(baseline, "--list-diagnostics"));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("x86.cpu_features.features") && line.contains(".active")) bits += line + "\n";
  }
  return bits;
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

// Each name by itself: masking it changes what libc takes for active, if the CPU has it.
TEST(Baseline, LibcKnowsEveryNameOfTheMask) {
  const wire::CpuFacts cpu = LookAtCpu();
  const std::set<std::string, std::less<>> flags(cpu.flags().begin(), cpu.flags().end());
  const std::string before = UsableBits("");
  ASSERT_FALSE(before.empty());
  int masked = 0;
  for (const Extension& each : Extensions()) {
    if (each.hwcaps.empty() || !flags.contains(each.flag)) continue;
    const std::string command = std::format("GLIBC_TUNABLES=glibc.cpu.hwcaps=-{} {} --list-diagnostics",
                                            each.hwcaps, kLoader);
    std::string after;
    std::istringstream lines(OutputOf(command));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("x86.cpu_features.features") && line.contains(".active"))
        after += line + "\n";
    }
    EXPECT_NE(after, before) << each.hwcaps << " masks nothing";
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
  EXPECT_THAT(MissingExtensions(full, Cpu({}), "x86-64-v4"), ElementsAre("sse4_2", "avx2", "avx512f"));
  EXPECT_THAT(MissingExtensions(full, Cpu({}), "x86-64-v3"), ElementsAre("sse4_2", "avx2"));
  EXPECT_THAT(MissingExtensions(full, Cpu({"sse4_2"}), "x86-64-v2"), ElementsAre());
  EXPECT_THAT(MissingState(full, Cpu({}, 0x3), ""), ElementsAre("AVX", "AVX-512"));
  EXPECT_THAT(MissingState(full, Cpu({}, 0x7), "x86-64-v3"), ElementsAre());
}

}  // namespace
}  // namespace xmpi::preflight
