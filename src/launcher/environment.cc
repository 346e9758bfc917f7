#include "launcher/environment.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "preflight/baseline.h"

namespace xmpi::launcher {
namespace {

using std::string_view_literals::operator""sv;

// They speak of the process manager that started us, which is not the ranks'.
bool IsManagers(std::string_view name) {
  constexpr std::array kPrefixes = {"PMI_"sv, "PMIX_"sv, "HYDRA_"sv, "HYDI_"sv, "MPI_LOCAL"sv};
  if (name.starts_with("XMPI_")) return name != "XMPI_DEBUG" && name != "XMPI_SIGNAL";
  return std::ranges::any_of(kPrefixes, [&](auto prefix) { return name.starts_with(prefix); });
}

// They say something that holds on this host or for this login only.
bool IsOfThisHost(std::string_view name) {
  constexpr std::array kPrefixes = {"SSH_"sv, "XDG_SESSION_"sv, "BASH_FUNC_"sv};
  constexpr std::array kNames = {"HOSTNAME"sv,
                                 "HOST"sv,
                                 "PWD"sv,
                                 "OLDPWD"sv,
                                 "SHLVL"sv,
                                 "_"sv,
                                 "XDG_RUNTIME_DIR"sv,
                                 "DBUS_SESSION_BUS_ADDRESS"sv};
  return std::ranges::find(kNames, name) != kNames.end() ||
         std::ranges::any_of(kPrefixes, [&](auto prefix) { return name.starts_with(prefix); });
}

bool Passes(const EnvironmentChoice& choice, const std::string& name) {
  if (IsManagers(name)) return false;
  switch (choice.kind) {
    case EnvironmentChoice::Kind::kAll:
      return !IsOfThisHost(name);
    case EnvironmentChoice::Kind::kNone:
      return false;
    case EnvironmentChoice::Kind::kList:
      return std::ranges::find(choice.names, name) != choice.names.end();
  }
  return false;
}

}  // namespace

std::map<std::string, std::string> RankEnvironment(const Options& options, const Segment& segment,
                                                   std::span<const Variable> ours,
                                                   const std::string& working_directory) {
  const EnvironmentChoice& choice = segment.environment_choice.value_or(options.environment_choice);
  std::map<std::string, std::string> environment;
  for (const auto& [name, value] : ours) {
    if (Passes(choice, name)) environment[name] = value;
  }
  environment["PWD"] = working_directory;
  for (const auto& [name, value] : options.environment) environment[name] = value;
  for (const auto& [name, value] : segment.environment) environment[name] = value;
  // Two slots may come to share a host, where UCX's shared memory between ranks that were once
  // apart aborts; within a slot MPICH has its own.
  environment.try_emplace("UCX_TLS", "^sm");
  if (!options.cpu_baseline.empty()) {
    std::string& tunables = environment["GLIBC_TUNABLES"];
    tunables = preflight::MergeTunables(tunables, options.cpu_baseline);
    environment[preflight::kBaselineVariable] = options.cpu_baseline;
  }
  return environment;
}

std::vector<std::string> InheritedNames() {
  return {"PATH",           "HOME",   "USER",     "LOGNAME",
          "SHELL",          "TMPDIR", "HOSTNAME", "XDG_RUNTIME_DIR",
          "LD_LIBRARY_PATH"};
}

}  // namespace xmpi::launcher
