#include "launcher/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

namespace xmpi::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<Options> Parse(std::initializer_list<std::string> words) {
  return ParseOptions(std::vector<std::string>(words));
}

std::string ErrorOf(std::initializer_list<std::string> words) {
  const auto options = Parse(words);
  EXPECT_FALSE(options);
  if (options) return "";
  EXPECT_EQ(options.error().code, ErrorCode::kUsage);
  return options.error().message;
}

TEST(Options, APlainLine) {
  const auto options =
      Parse({"-n", "4", "-ppn", "2", "-hosts", "h1:2,h2", "./a.out", "-n", "x y", ""});
  ASSERT_TRUE(options) << options.error().message;
  ASSERT_EQ(options->segments.size(), 1u);
  EXPECT_EQ(options->segments[0].ranks, 4u);
  EXPECT_EQ(options->ranks_per_host, 2u);
  EXPECT_THAT(options->hosts, ElementsAre(Host{"h1", 2}, Host{"h2", 0}));
  EXPECT_THAT(options->segments[0].argv, ElementsAre("./a.out", "-n", "x y", ""));
}

TEST(Options, AliasesAndDoubleDashes) {
  EXPECT_EQ(Parse({"-np", "3", "a"})->segments[0].ranks, 3u);
  EXPECT_EQ(Parse({"--n", "3", "a"})->segments[0].ranks, 3u);
  EXPECT_EQ(Parse({"-hostfile", "f", "a"})->hostfile, "f");
  EXPECT_EQ(Parse({"--help"})->mode, Options::Mode::kHelp);
  EXPECT_EQ(Parse({"-version"})->mode, Options::Mode::kVersion);
  EXPECT_THAT(Parse({"-n", "1", "--", "-odd-program"})->segments[0].argv,
              ElementsAre("-odd-program"));
}

TEST(Options, SegmentsHaveTheirOwnOptions) {
  const auto options = Parse({"-n", "1", "-env", "A", "1", "-wdir", "/x", "prog1", "arg", ":", "-n",
                              "2", "-host", "h3", "-env", "B=2=3", "-envnone", "prog2"});
  ASSERT_TRUE(options) << options.error().message;
  ASSERT_EQ(options->segments.size(), 2u);
  const Segment& first = options->segments[0];
  const Segment& second = options->segments[1];
  EXPECT_THAT(first.argv, ElementsAre("prog1", "arg"));
  EXPECT_THAT(first.environment, ElementsAre(Variable{"A", "1"}));
  EXPECT_EQ(first.working_directory, "/x");
  EXPECT_FALSE(first.environment_choice);
  EXPECT_THAT(second.argv, ElementsAre("prog2"));
  EXPECT_EQ(second.ranks, 2u);
  EXPECT_THAT(second.hosts, ElementsAre(Host{"h3", 0}));
  EXPECT_THAT(second.environment, ElementsAre(Variable{"B", "2=3"}));
  EXPECT_EQ(second.environment_choice->kind, EnvironmentChoice::Kind::kNone);
}

TEST(Options, EnvironmentValuesMayBeEmptyOrOdd) {
  const auto options = Parse({"-genv", "EMPTY", "", "-genv", "SPACES", "a b", "-genv", "UTF8",
                              "żółw", "-genv", "E=", "a"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_THAT(options->environment, ElementsAre(Variable{"EMPTY", ""}, Variable{"SPACES", "a b"},
                                                Variable{"UTF8", "żółw"}, Variable{"E", ""}));
  EXPECT_THAT(Parse({"-genvlist", "A,B", "a"})->environment_choice.names, ElementsAre("A", "B"));
  EXPECT_EQ(Parse({"-genvnone", "a"})->environment_choice.kind, EnvironmentChoice::Kind::kNone);
}

TEST(Options, TheRest) {
  const auto options = Parse({"-spares",
                              "s1,s2",
                              "-l",
                              "-v",
                              "-print-timing",
                              "-bind-to",
                              "core",
                              "-cpu-baseline",
                              "v3",
                              "-usize",
                              "12",
                              "-launcher",
                              "exec",
                              "ip netns exec",
                              "-iface",
                              "eth0",
                              "-port-range",
                              "5000:5100",
                              "-no-carry-files",
                              "-timeout",
                              "30",
                              "-timeouts",
                              "quiesce=0.5,link_timeout=3",
                              "-job",
                              "heat",
                              "-event-log",
                              "/tmp/log",
                              "-proxy-path",
                              "/p",
                              "a"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_THAT(options->spares, ElementsAre("s1", "s2"));
  EXPECT_TRUE(options->label && options->verbose && options->print_timing);
  EXPECT_FALSE(options->carry_files);
  EXPECT_EQ(options->bind_to, "core");
  EXPECT_EQ(options->cpu_baseline, "x86-64-v3");
  EXPECT_EQ(options->universe_size, 12);
  EXPECT_THAT(options->remote_shell, ElementsAre("ip", "netns", "exec"));
  EXPECT_EQ(options->interface, "eth0");
  EXPECT_EQ(options->port_range, "5000:5100");
  EXPECT_EQ(options->timeout, std::chrono::seconds(30));
  EXPECT_EQ(options->phase_timeouts.quiesce, std::chrono::milliseconds(500));
  EXPECT_EQ(options->link_timeouts.link_timeout, std::chrono::seconds(3));
  EXPECT_EQ(options->job, "heat");
  EXPECT_EQ(options->event_log, "/tmp/log");
  EXPECT_EQ(options->proxy_path, "/p");
}

TEST(Options, ATimeoutOfTwoTablesIsSetInBoth) {
  const auto options = Parse({"-timeouts", "start=7", "a"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->phase_timeouts.start, std::chrono::seconds(7));
  EXPECT_EQ(options->link_timeouts.start, std::chrono::seconds(7));
}

TEST(Options, ErrorsSayWhatWhereAndWhatToDo) {
  EXPECT_THAT(ErrorOf({}), HasSubstr("no program"));
  EXPECT_THAT(ErrorOf({"-n", "4"}), HasSubstr("no program"));
  EXPECT_THAT(ErrorOf({"-n"}), HasSubstr("-n needs N"));
  EXPECT_THAT(ErrorOf({"-n", "four", "a"}), HasSubstr("'four'"));
  EXPECT_THAT(ErrorOf({"-n", "0", "a"}), HasSubstr("from 1"));
  EXPECT_THAT(ErrorOf({"-n", "-3", "a"}), HasSubstr("'-3'"));
  EXPECT_THAT(ErrorOf({"-n", "1000000", "a"}), HasSubstr("4096"));
  EXPECT_THAT(ErrorOf({"-frobnicate", "a"}), HasSubstr("-help"));
  EXPECT_THAT(ErrorOf({"a", ":", "-n", "2"}), HasSubstr("after ':' number 1"));
  EXPECT_THAT(ErrorOf({"a", ":", "-frob", "b"}), HasSubstr("after ':' number 1"));
  EXPECT_THAT(ErrorOf({"-genv", "A"}), HasSubstr("-genv"));
  EXPECT_THAT(ErrorOf({"-genv", "=x", "a"}), HasSubstr("name of a variable"));
  EXPECT_THAT(ErrorOf({"-port-range", "9:1", "a"}), HasSubstr("9:1"));
  EXPECT_THAT(ErrorOf({"-bind-to", "socket", "a"}), HasSubstr("socket"));
  EXPECT_THAT(ErrorOf({"-cpu-baseline", "v9", "a"}), HasSubstr("x86-64-v2"));
  EXPECT_THAT(ErrorOf({"-cpu-baseline", "x86-64", "a"}), HasSubstr("x86-64-v2"));
  EXPECT_THAT(ErrorOf({"-timeouts", "nap=3", "a"}), HasSubstr("quiesce"));
  EXPECT_THAT(ErrorOf({"-timeouts", "quiesce=soon", "a"}), HasSubstr("soon"));
  EXPECT_THAT(ErrorOf({"-launcher", "rsh", "a"}), HasSubstr("rsh"));
  EXPECT_THAT(ErrorOf({"-launcher", "exec", "", "a"}), HasSubstr("exec"));
  EXPECT_THAT(ErrorOf({"-job", "a/b", "a"}), HasSubstr("a/b"));
  EXPECT_THAT(ErrorOf({"-usize", "many", "a"}), HasSubstr("many"));
  EXPECT_THAT(ErrorOf({"-wdir", "", "a"}), HasSubstr("-wdir"));
  EXPECT_THAT(ErrorOf({""}), HasSubstr("no program"));
}

TEST(Options, NamesAreUniqueAndAllAreInTheHelp) {
  std::set<std::string_view> names;
  const std::string help = HelpText();
  for (const OptionHelp& row : OptionTable()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_THAT(help, HasSubstr(std::string(row.name)));
    if (row.alias.empty()) continue;
    EXPECT_TRUE(names.insert(row.alias).second) << row.alias;
  }
}

// The man page's OPTIONS are the table's, no more and no less.
TEST(Options, TheManPageHasEveryOption) {
  std::ifstream file(XMPI_MAN_PAGE);
  std::stringstream page;
  page << file.rdbuf();
  ASSERT_FALSE(page.str().empty()) << XMPI_MAN_PAGE;
  const std::string text = page.str();
  const std::string options =
      text.substr(text.find(".SH OPTIONS"), text.find(".SH PLACEMENT") - text.find(".SH OPTIONS"));
  std::set<std::string> documented;
  const std::regex row(R"(\\fB(\\-[A-Za-z\\-]+)\\fR)");
  std::istringstream lines(options);
  for (std::string line, before; std::getline(lines, line); before = line) {
    if (before != ".TP") continue;
    for (std::sregex_iterator each(line.begin(), line.end(), row), end; each != end; ++each)
      documented.insert(std::regex_replace((*each)[1].str(), std::regex(R"(\\-)"), "-"));
  }
  std::set<std::string> known;
  for (const OptionHelp& each : OptionTable()) {
    known.emplace(each.name);
    if (!each.alias.empty()) known.emplace(each.alias);
  }
  EXPECT_EQ(documented, known);
}

}  // namespace
}  // namespace xmpi::launcher
