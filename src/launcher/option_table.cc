#include "launcher/option_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <format>

#include "os/net.h"
#include "preflight/baseline.h"

namespace xmpi::launcher {
namespace {

template <class T>
Result<T> ParseNumber(std::string_view text, T least, T most) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least || number > most)
    return Fail(ErrorCode::kUsage,
                std::format("'{}' is not a number from {} to {}", text, least, most));
  return number;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

Result<> CheckVariableName(std::string_view name) {
  if (name.empty() || name.contains('=') || name.contains('\0'))
    return Fail(ErrorCode::kUsage, std::format("'{}' cannot be the name of a variable", name));
  return {};
}

Result<Variable> ParseVariable(Values values) {
  Variable variable;
  if (values.size() == 2) {
    variable = {values[0], values[1]};
  } else {
    const auto equals = values[0].find('=');
    variable = {values[0].substr(0, equals), values[0].substr(equals + 1)};
  }
  XMPI_RETURN_IF_ERROR(CheckVariableName(variable.first));
  return variable;
}

Result<EnvironmentChoice> ParseNames(std::string_view text) {
  EnvironmentChoice choice{.kind = EnvironmentChoice::Kind::kList, .names = {}};
  for (const std::string_view name : Split(text, ',')) {
    XMPI_RETURN_IF_ERROR(CheckVariableName(name));
    choice.names.emplace_back(name);
  }
  return choice;
}

Result<std::chrono::milliseconds> ParseSeconds(std::string_view text) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(seconds) ||
      seconds < 0.001 || seconds > 1e6)
    return Fail(ErrorCode::kUsage,
                std::format("'{}' is not a number of seconds from 0.001 to 1000000", text));
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

std::string TimeoutNames() {
  std::string names;
  const auto add = [&](std::string_view name) {
    if (!names.contains(name)) names += (names.empty() ? "" : ", ") + std::string(name);
  };
#define XMPI_ADD_NAME(name, value) add(#name);
  XMPI_PHASE_TIMEOUTS(XMPI_ADD_NAME)
  XMPI_LINK_TIMEOUTS(XMPI_ADD_NAME)
#undef XMPI_ADD_NAME
  return names;
}

Result<> ApplyTimeouts(Target target, Values values) {
  for (const std::string_view part : Split(values[0], ',')) {
    const auto equals = part.find('=');
    if (equals == std::string_view::npos)
      return Fail(ErrorCode::kUsage, std::format("'{}' is not NAME=SECONDS", part));
    const std::string_view name = part.substr(0, equals);
    auto* phase = target.options.phase_timeouts.Find(name);
    auto* link = target.options.link_timeouts.Find(name);
    if (phase == nullptr && link == nullptr)
      return Fail(ErrorCode::kUsage,
                  std::format("no timeout is called '{}'; there are {}", name, TimeoutNames()));
    XMPI_ASSIGN_OR_RETURN(const auto value, ParseSeconds(part.substr(equals + 1)));
    if (phase != nullptr) *phase = value;
    if (link != nullptr) *link = value;
  }
  return {};
}

Result<> ApplyJob(Target target, Values values) {
  const std::string& name = values[0];
  const bool good = !name.empty() && name.size() <= limits::kJobNameBytes && name[0] != '.' &&
                    name[0] != '-' && std::ranges::all_of(name, [](unsigned char c) {
                      return std::isalnum(c) || c == '.' || c == '-' || c == '_';
                    });
  if (!good)
    return Fail(ErrorCode::kUsage,
                std::format("'{}' cannot be a job's name: up to {} letters, digits, '.', '_', '-'",
                            name, limits::kJobNameBytes));
  target.options.job = name;
  return {};
}

Result<> ApplyUniverse(Target target, Values values) {
  Options& options = target.options;
  std::string word = values[0];
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
  if (word == "system") {
    options.universe = Options::Universe::kSystem;
  } else if (word == "infinite") {
    options.universe = Options::Universe::kInfinite;
  } else {
    XMPI_ASSIGN_OR_RETURN(options.universe_size, ParseNumber<std::int32_t>(word, 1, 1 << 30));
    options.universe = Options::Universe::kNumber;
  }
  return {};
}

Result<> ApplyShell(Target target, Values values) {
  target.options.remote_shell.clear();
  if (values[0] == "ssh") return {};
  if (values[0] != "exec")
    return Fail(ErrorCode::kUsage, std::format("'{}' is neither 'ssh' nor 'exec CMD'", values[0]));
  for (const std::string_view word : Split(values[1], ' ')) {
    if (!word.empty()) target.options.remote_shell.emplace_back(word);
  }
  if (target.options.remote_shell.empty())
    return Fail(ErrorCode::kUsage, "'exec' needs a command behind it");
  return {};
}

Result<> ApplyPortRange(Target target, Values values) {
  XMPI_RETURN_IF_ERROR(os::ParsePortRange(values[0]));
  target.options.port_range = values[0];
  return {};
}

Result<> ApplyBinding(Target target, Values values) {
  if (values[0] != "core" && values[0] != "none")
    return Fail(ErrorCode::kUsage, std::format("'{}' is neither 'core' nor 'none'", values[0]));
  target.options.bind_to = values[0];
  return {};
}

Result<> ApplyBaseline(Target target, Values values) {
  const std::string name = values[0].starts_with('v') ? "x86-64-" + values[0] : values[0];
  if (!preflight::IsBaseline(name))
    return Fail(ErrorCode::kUsage, std::format("'{}' is no CPU baseline; there are {}", values[0],
                                               preflight::BaselineNames()));
  target.options.cpu_baseline = name;
  return {};
}

// Assigns the parsed value of an option to where it belongs.
template <class T>
Result<> Assign(Result<T> parsed, auto& where) {
  XMPI_ASSIGN_OR_RETURN(where, std::move(parsed));
  return {};
}
template <class T>
Result<> Append(Result<T> parsed, std::vector<T>& where) {
  if (!parsed) return std::unexpected(std::move(parsed.error()));
  where.push_back(std::move(*parsed));
  return {};
}
Result<> Text(Values values, std::string& where) {
  if (values[0].empty()) return Fail(ErrorCode::kUsage, "its value is empty");
  where = values[0];
  return {};
}
Result<> Set(bool& flag) {
  flag = true;
  return {};
}
Result<> Mode(Options& options, Options::Mode mode) {
  options.mode = mode;
  return {};
}
Result<> Choose(auto& choice, EnvironmentChoice::Kind kind) {
  choice = EnvironmentChoice{.kind = kind, .names = {}};
  return {};
}

constexpr std::array kOptions = {
    // Where and how many; -n, -host, -env*, -wdir belong to one segment, all else to the job.
    Option{{"-n", "-np", "N", "ranks of this program"},
           1,
           [](Target t, Values v) {
             return Assign(ParseNumber<std::uint32_t>(v[0], 1, kRanksLimit), t.segment.ranks);
           }},
    Option{{"-ppn", "-perhost", "N", "ranks on each host in turn"},
           1,
           [](Target t, Values v) {
             return Assign(ParseNumber<std::uint32_t>(v[0], 1, kRanksLimit),
                           t.options.ranks_per_host);
           }},
    Option{{"-hosts", "", "H1:N1,H2,...", "hosts to run on, with ranks on each"},
           1,
           [](Target t, Values v) { return Assign(ParseHostList(v[0]), t.options.hosts); }},
    Option{{"-host", "", "H1,...", "hosts of this program only"},
           1,
           [](Target t, Values v) { return Assign(ParseHostList(v[0]), t.segment.hosts); }},
    Option{{"-f", "-hostfile", "FILE", "hosts from a file: HOST or HOST:N a line, # comments"},
           1,
           [](Target t, Values v) { return Text(v, t.options.hostfile); }},
    Option{{"-machinefile", "", "FILE", "the same as -f"},
           1,
           [](Target t, Values v) { return Text(v, t.options.hostfile); }},
    Option{{"-spares", "", "H1,H2,...", "hosts that ranks may move to"},
           1,
           [](Target t, Values v) { return Assign(ParseNodeList(v[0]), t.options.spares); }},
    Option{{"-usize", "", "N|system|infinite", "MPI_UNIVERSE_SIZE (default: the ranks)"},
           1,
           ApplyUniverse},
    Option{{"-bind-to", "", "core|none", "bind each rank to a core of its own (default: none)"},
           1,
           ApplyBinding},
    Option{
        {"-cpu-baseline", "", "x86-64-v2|v3|v4", "let libc use no CPU feature beyond this level"},
        1,
        ApplyBaseline},
    Option{{"-no-carry-files", "", "",
            "refuse a move when ranks have files open on a node's own disk"},
           0,
           [](Target t, Values) {
             t.options.carry_files = false;
             return Result<>();
           }},
    // Environment and folder.
    Option{{"-genv", "", "NAME VALUE", "set a variable for all ranks (NAME=VALUE too)"},
           kPair,
           [](Target t, Values v) { return Append(ParseVariable(v), t.options.environment); }},
    Option{
        {"-genvlist", "", "N1,N2,...", "of our environment pass on these variables only"},
        1,
        [](Target t, Values v) { return Assign(ParseNames(v[0]), t.options.environment_choice); }},
    Option{{"-genvall", "", "", "pass on our whole environment (default)"},
           0,
           [](Target t, Values) {
             return Choose(t.options.environment_choice, EnvironmentChoice::Kind::kAll);
           }},
    Option{{"-genvnone", "", "", "pass on nothing of our environment"},
           0,
           [](Target t, Values) {
             return Choose(t.options.environment_choice, EnvironmentChoice::Kind::kNone);
           }},
    Option{{"-env", "", "NAME VALUE", "set a variable for this program (NAME=VALUE too)"},
           kPair,
           [](Target t, Values v) { return Append(ParseVariable(v), t.segment.environment); }},
    Option{
        {"-envlist", "", "N1,N2,...", "as -genvlist, for this program"},
        1,
        [](Target t, Values v) { return Assign(ParseNames(v[0]), t.segment.environment_choice); }},
    Option{{"-envall", "", "", "as -genvall, for this program"},
           0,
           [](Target t, Values) {
             return Choose(t.segment.environment_choice, EnvironmentChoice::Kind::kAll);
           }},
    Option{{"-envnone", "", "", "as -genvnone, for this program"},
           0,
           [](Target t, Values) {
             return Choose(t.segment.environment_choice, EnvironmentChoice::Kind::kNone);
           }},
    Option{{"-wdir", "-wd", "DIR", "folder this program starts in (default: this one)"},
           1,
           [](Target t, Values v) { return Text(v, t.segment.working_directory.emplace()); }},
    // How hosts are reached.
    Option{{"-launcher", "", "ssh|exec CMD", "start proxies by ssh, or by `CMD HOST COMMAND...`"},
           kShell,
           ApplyShell},
    Option{{"-proxy-path", "", "FILE", "xmpi-proxy on the hosts (default: beside xmpiexec)"},
           1,
           [](Target t, Values v) { return Text(v, t.options.proxy_path); }},
    Option{{"-iface", "", "NAME|ADDRESS", "network interface for all connections, MPI's too"},
           1,
           [](Target t, Values v) { return Text(v, t.options.interface); }},
    Option{{"-port-range", "", "LO:HI", "ports for all connections, MPI's too"}, 1, ApplyPortRange},
    // Bounds.
    Option{{"-timeout", "", "SECONDS", "end the job after this time, with exit code 124"},
           1,
           [](Target t, Values v) {
             return Assign(ParseNumber<std::uint32_t>(v[0], 1, 100'000'000).transform([](auto n) {
               return std::chrono::seconds(n);
             }),
                           t.options.timeout);
           }},
    Option{{"-timeouts", "", "NAME=SECONDS,...", "deadlines of phases and links, by name"},
           1,
           ApplyTimeouts},
    // What is shown and kept.
    Option{{"-l", "-prepend-rank", "", "begin each line of output with `[RANK] `"},
           0,
           [](Target t, Values) { return Set(t.options.label); }},
    Option{{"-job", "", "NAME", "name of the job for xmpictl (default: PROGRAM-PID)"}, 1, ApplyJob},
    Option{{"-event-log", "", "FILE", "write the job's events there"},
           1,
           [](Target t, Values v) { return Text(v, t.options.event_log); }},
    Option{{"-print-timing", "", "", "tell how long start, run and end took"},
           0,
           [](Target t, Values) { return Set(t.options.print_timing); }},
    Option{{"-v", "-verbose", "", "tell each event on stderr as it happens"},
           0,
           [](Target t, Values) { return Set(t.options.verbose); }},
    Option{{"-version", "-V", "", "show the version"},
           0,
           [](Target t, Values) { return Mode(t.options, Options::Mode::kVersion); }},
    Option{{"-help", "-h", "", "show this"},
           0,
           [](Target t, Values) { return Mode(t.options, Options::Mode::kHelp); }},
};

}  // namespace

std::span<const Option> OptionRows() { return kOptions; }

}  // namespace xmpi::launcher
