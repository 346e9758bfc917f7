#include "launcher/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace xmpi::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

core::JobPlan Plan(std::vector<std::string> words, Surroundings around = {}) {
  const auto options = ParseOptions(words);
  EXPECT_TRUE(options) << options.error().message;
  if (around.working_directory.empty()) around.working_directory = "/home";
  if (around.hostname.empty()) around.hostname = "here";
  auto plan = MakePlan(*options, options->hosts, around);
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? *plan : core::JobPlan{};
}

// "node:rank rank ...; ..."
std::string Places(const core::JobPlan& plan) {
  std::string text;
  for (const core::SlotPlan& slot : plan.slots) {
    text += (text.empty() ? "" : "; ") + slot.node + ":";
    for (const wire::RankSpec& rank : slot.ranks) text += " " + std::to_string(rank.rank());
  }
  return text;
}

std::map<std::string, std::string> EnvironmentOf(const core::JobPlan& plan, std::size_t slot = 0,
                                                 std::size_t index = 0) {
  std::map<std::string, std::string> environment;
  for (const auto& variable : plan.slots[slot].ranks[index].environment())
    environment[variable.name()] = variable.value();
  return environment;
}

TEST(Plan, ACpuBaselineJoinsTheUsersTunables) {
  Surroundings around;
  around.environment = {{"GLIBC_TUNABLES", "glibc.malloc.check=1:glibc.cpu.hwcaps=-ERMS"}};
  const auto masked = EnvironmentOf(Plan({"-cpu-baseline", "v3", "a"}, around));
  const std::string tunables = masked.at("GLIBC_TUNABLES");
  EXPECT_THAT(tunables, testing::StartsWith("glibc.malloc.check=1:glibc.cpu.hwcaps="));
  EXPECT_THAT(tunables, HasSubstr("-AVX512F"));
  EXPECT_THAT(tunables, HasSubstr("-ERMS"));
  EXPECT_THAT(tunables, testing::Not(HasSubstr("-AVX2")));
  EXPECT_EQ(masked.at("XMPI_CPU_BASELINE"), "x86-64-v3");
  EXPECT_FALSE(EnvironmentOf(Plan({"a"})).contains("GLIBC_TUNABLES"));
}

TEST(Plan, WithoutHostsAllRanksAreHere) {
  EXPECT_EQ(Places(Plan({"-n", "3", "a"})), "here: 0 1 2");
  EXPECT_EQ(Places(Plan({"a"})), "here: 0");
}

TEST(Plan, BlocksByPpnThenByCountThenOneByOne) {
  EXPECT_EQ(Places(Plan({"-n", "8", "-ppn", "4", "-hosts", "h1,h2", "a"})),
            "h1: 0 1 2 3; h2: 4 5 6 7");
  EXPECT_EQ(Places(Plan({"-n", "5", "-hosts", "h1:3,h2:2", "a"})), "h1: 0 1 2; h2: 3 4");
  EXPECT_EQ(Places(Plan({"-n", "4", "-hosts", "h1,h2", "a"})), "h1: 0 2; h2: 1 3");
  EXPECT_EQ(Places(Plan({"-n", "6", "-ppn", "2", "-hosts", "h1:5,h2", "a"})),
            "h1: 0 1 4 5; h2: 2 3");
}

TEST(Plan, WithoutNAllCountsAreFilled) {
  EXPECT_EQ(Places(Plan({"-hosts", "h1:2,h2", "a"})), "h1: 0 1; h2: 2");
  EXPECT_EQ(Places(Plan({"-ppn", "2", "-hosts", "h1,h2", "a"})), "h1: 0 1; h2: 2 3");
}

TEST(Plan, AHostWithoutRanksHasNoSlot) {
  EXPECT_EQ(Places(Plan({"-n", "2", "-ppn", "2", "-hosts", "h1,h2,h3", "a"})), "h1: 0 1");
}

TEST(Plan, AHostThatIsNamedTwiceHasTwoSlots) {
  EXPECT_EQ(Places(Plan({"-n", "4", "-ppn", "2", "-hosts", "h1,h1", "a"})), "h1: 0 1; h1: 2 3");
}

TEST(Plan, AHostWithMoreRanksThanPortsIsNamed) {
  const auto plan = Plan({"-ppn", "2", "-hosts", "h1,h2,h1", "a"});
  EXPECT_EQ(PortShortage(plan, {}), "");
  EXPECT_EQ(PortShortage(plan, {.low = 5000, .high = 5003}), "");
  EXPECT_THAT(PortShortage(plan, {.low = 5000, .high = 5002}),
              HasSubstr("5000:5002 has 3 ports for 4 ranks on h1"));
}

TEST(Plan, SegmentsGoOnWhereTheLastOneEnded) {
  const auto plan = Plan({"-ppn", "2", "-hosts", "h1,h2", "-n", "1", "a", ":", "-n", "3", "b"});
  EXPECT_EQ(Places(plan), "h1: 0 1; h2: 2 3");
  EXPECT_EQ(plan.slots[0].ranks[0].appnum(), 0u);
  EXPECT_EQ(plan.slots[0].ranks[1].appnum(), 1u);
  EXPECT_EQ(plan.slots[0].ranks[0].argv(0), "a");
  EXPECT_EQ(plan.slots[0].ranks[1].argv(0), "b");
}

TEST(Plan, ASegmentWithItsOwnHostUsesTheJobsSlotThere) {
  EXPECT_EQ(Places(Plan({"-hosts", "h1,h2", "-n", "2", "a", ":", "-host", "h2", "-n", "2", "b", ":",
                         "-host", "h3", "-n", "1", "c"})),
            "h1: 0; h2: 1 2 3; h3: 4");
}

TEST(Plan, TheMappingIsBySlot) {
  EXPECT_EQ(Plan({"-n", "4", "-ppn", "2", "-hosts", "h1,h1", "a"}).process_mapping,
            "(vector,(0,2,2))");
}

TEST(Plan, RankZeroTakesStandardInput) {
  const auto plan = Plan({"-n", "3", "a"});
  EXPECT_TRUE(plan.slots[0].ranks[0].takes_stdin());
  EXPECT_FALSE(plan.slots[0].ranks[1].takes_stdin());
}

TEST(Plan, UniverseSize) {
  EXPECT_EQ(Plan({"-n", "3", "a"}).universe_size, 3);
  EXPECT_EQ(Plan({"-n", "3", "-usize", "9", "a"}).universe_size, 9);
  EXPECT_EQ(Plan({"-n", "3", "-usize", "infinite", "a"}).universe_size, -1);
  EXPECT_EQ(Plan({"-n", "3", "-usize", "SYSTEM", "-hosts", "h1:4,h2:4", "a"}).universe_size, 8);
}

TEST(Plan, WorkingDirectory) {
  EXPECT_EQ(Plan({"a"}).slots[0].ranks[0].working_directory(), "/home");
  EXPECT_EQ(Plan({"-wdir", "sub/../x", "a"}).slots[0].ranks[0].working_directory(), "/home/x");
  EXPECT_EQ(Plan({"-wdir", "/abs/", "a"}).slots[0].ranks[0].working_directory(), "/abs");
  EXPECT_EQ(EnvironmentOf(Plan({"-wdir", "/abs", "a"}))["PWD"], "/abs");
}

TEST(Plan, TheEnvironmentPassesButNotWhatIsOursOrThisHosts) {
  const Surroundings around{.environment = {{"A", "1"},
                                            {"EMPTY", ""},
                                            {"HOSTNAME", "here"},
                                            {"SSH_TTY", "x"},
                                            {"PMI_FD", "7"},
                                            {"PMI_RANK", "0"},
                                            {"XMPI_FD", "9"},
                                            {"PATH", "/bin"}}};
  const auto all = EnvironmentOf(Plan({"a"}, around));
  EXPECT_EQ(
      all, (std::map<std::string, std::string>{
               {"A", "1"}, {"EMPTY", ""}, {"PATH", "/bin"}, {"PWD", "/home"}, {"UCX_TLS", "^sm"}}));
  EXPECT_EQ(EnvironmentOf(Plan({"-genvnone", "a"}, around)),
            (std::map<std::string, std::string>{{"PWD", "/home"}, {"UCX_TLS", "^sm"}}));
  // Asked for by name, a host's own variable passes; a process manager's never does.
  EXPECT_EQ(EnvironmentOf(Plan({"-genvlist", "HOSTNAME,PMI_FD", "a"}, around)),
            (std::map<std::string, std::string>{
                {"HOSTNAME", "here"}, {"PWD", "/home"}, {"UCX_TLS", "^sm"}}));
}

TEST(Plan, SettingsWinFromTheGeneralToTheSpecial) {
  const Surroundings around{.environment = {{"A", "shell"}, {"B", "shell"}, {"UCX_TLS", "tcp"}}};
  const auto plan = Plan({"-genv", "A", "job", "-genv", "B", "job", "-n", "1", "-env", "B", "mine",
                          "a", ":", "-envnone", "b"},
                         around);
  auto first = EnvironmentOf(plan, 0, 0);
  EXPECT_EQ(first["A"], "job");
  EXPECT_EQ(first["B"], "mine");
  EXPECT_EQ(first["UCX_TLS"], "tcp");
  auto second = EnvironmentOf(plan, 0, 1);
  EXPECT_EQ(second["B"], "job");
  EXPECT_EQ(second["UCX_TLS"], "^sm");
}

TEST(Plan, TheJobIsNamedAfterItsProgram) {
  EXPECT_EQ(Plan({"./heat 2d.x"}, {.pid = 42}).job, "heat2dx-42");
  EXPECT_EQ(Plan({"-job", "mine", "a"}, {.pid = 42}).job, "mine");
  EXPECT_EQ(Plan({"żółw"}, {.pid = 7}).job, "w-7");
}

TEST(Plan, TooManyRanksAreRefused) {
  const auto options =
      ParseOptions(std::vector<std::string>{"-n", "4096", "a", ":", "-n", "1", "b"});
  ASSERT_TRUE(options);
  const auto plan = MakePlan(*options, {}, {.hostname = "here"});
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message, HasSubstr("4096"));
}

}  // namespace
}  // namespace xmpi::launcher
