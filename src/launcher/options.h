// What the user asks of xmpiexec: the words of mpiexec's command line as values. One table names
// every option; the parser, -help and the test of the man page all go by it. Pure: no file is read
// here, nothing is looked up.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/limits.h"
#include "core/timeouts.h"
#include "launcher/hosts.h"

namespace xmpi::launcher {

using Variable = std::pair<std::string, std::string>;

// Which of the launcher's own environment a rank gets.
struct EnvironmentChoice {
  enum class Kind { kAll, kNone, kList };
  Kind kind = Kind::kAll;
  std::vector<std::string> names;  // of kList
};

// What stands between two `:`: one program on some ranks.
struct Segment {
  std::optional<std::uint32_t> ranks;
  std::vector<Host> hosts;  // -host; empty: the job's hosts
  std::vector<Variable> environment;
  std::optional<EnvironmentChoice> environment_choice;  // else the job's
  std::optional<std::string> working_directory;
  std::vector<std::string> argv;
};

struct Options {
  enum class Mode { kRun, kHelp, kVersion };
  Mode mode = Mode::kRun;

  std::vector<Segment> segments;
  std::vector<Host> hosts;
  std::string hostfile;
  std::vector<std::string> spares;
  std::optional<std::uint32_t> ranks_per_host;
  std::vector<Variable> environment;
  EnvironmentChoice environment_choice;

  std::string job;  // empty: made from the program's name and our pid
  bool label = false;
  bool verbose = false;
  bool print_timing = false;
  std::string bind_to = "none";
  std::string cpu_baseline;  // "x86-64-v3"; empty: whatever the CPU has
  enum class Universe { kRanks, kSystem, kInfinite, kNumber };
  Universe universe = Universe::kRanks;
  std::int32_t universe_size = 0;  // of kNumber

  std::vector<std::string> remote_shell;  // -launcher exec CMD, split at blanks; empty: ssh
  std::string proxy_path;                 // empty: beside xmpiexec
  std::string interface;
  std::string port_range;
  bool carry_files = true;
  std::optional<std::chrono::seconds> timeout;
  core::Timeouts phase_timeouts;
  LinkTimeouts link_timeouts;
  std::string event_log;
};

// `arguments` without the program's own name. Errors are kUsage: what, where, what to do.
Result<Options> ParseOptions(std::span<const std::string> arguments);

// One row of the table, for -help and for the man page's test.
struct OptionHelp {
  std::string_view name;       // with its dash
  std::string_view alias;      // or empty
  std::string_view arguments;  // as shown, "NAME VALUE"
  std::string_view text;
};
std::vector<OptionHelp> OptionTable();
std::string HelpText();

}  // namespace xmpi::launcher
