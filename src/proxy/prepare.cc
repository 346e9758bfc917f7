#include "proxy/prepare.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <format>
#include <system_error>

#include "base/log.h"
#include "criu/process_tree.h"
#include "preflight/baseline.h"
#include "preflight/compare.h"
#include "preflight/files.h"
#include "preflight/node_facts.h"
#include "preflight/rank_facts.h"

namespace xmpi::proxy {
namespace {

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "; ") + line;
  return text;
}

std::string PathOf(const wire::Launch& launch, const wire::RankSpec& rank) {
  for (const wire::EnvironmentVariable& each : rank.environment()) {
    if (each.name() == "PATH") return each.value();
  }
  for (const std::string& name : launch.inherit_environment()) {
    const char* value = name == "PATH" ? std::getenv("PATH") : nullptr;
    if (value != nullptr) return value;
  }
  return "/bin:/usr/bin";
}

// All processes of a rank as this node numbers them, and its ends of what ties it to us.
preflight::RankToLookAt ToLookAt(int proc_fd, RankId rank, const Ranks::Process& process) {
  preflight::RankToLookAt look{.rank = rank, .ghost_limit_bytes = criu::kGhostLimitBytes};
  for (const criu::Process& each : criu::ReadTree(proc_fd, process.host_pid))
    look.pids.push_back(each.pid);
  for (const criu::Tie& tie : process.ties) look.ties.insert(tie.inode);
  return look;
}

std::vector<preflight::RankToLookAt> ToLookAt(const Living& ranks) {
  const Fd proc(open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  std::vector<preflight::RankToLookAt> looks;
  for (const auto& [rank, process] : ranks) looks.push_back(ToLookAt(proc.get(), rank, process));
  return looks;
}

// Daemons that a rank has started are in no rank's tree; the first one is named for them all.
void AddStrays(const os::Slot& slot, const Living& ranks, wire::SourceFacts* facts) {
  if (!slot.has_namespaces() || facts->ranks().empty()) return;
  std::vector<pid_t> roots;
  for (const auto& [rank, process] : ranks) roots.push_back(process.pid);
  for (const criu::Process& stray : criu::Strays(slot.proc_fd(), roots)) {
    wire::Held& held = *facts->mutable_ranks(0)->add_holds();
    held.set_kind(wire::Held::STRAY);
    held.set_fd(-1);
    held.set_name(std::format("{} (PID {} in its slot)", stray.name, stray.pid));
  }
}

std::string BaselineOf(const wire::Launch& launch, RankId rank) {
  for (const wire::RankSpec& each : launch.ranks()) {
    if (each.rank() != rank) continue;
    for (const wire::EnvironmentVariable& variable : each.environment())
      if (variable.name() == preflight::kBaselineVariable) return variable.value();
  }
  return "";
}

}  // namespace

Result<> CheckNamespaces(const os::Slot& slot) {
  if (slot.has_namespaces()) return {};
  return Fail(ErrorCode::kRefused,
              std::format("{}; run as root or give xmpi-proxy the privilege", Joined(slot.lost())));
}

Result<std::string> FindProgram(const std::string& program, const std::string& directory,
                                const std::string& path) {
  const auto usable = [](const std::string& file) {
    struct stat info{};
    return stat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
           access(file.c_str(), X_OK) == 0;
  };
  const auto from_directory = [&](const std::string& file) {
    return (std::filesystem::path(directory.empty() ? "/" : directory) / file).string();
  };
  if (program.contains('/')) {
    const std::string file = from_directory(program);
    if (usable(file)) return file;
    return Fail(std::format("{} is not there or not executable", file));
  }
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find(':', at), path.size());
    const std::string file = from_directory(path.substr(at, end - at) + "/" + program);
    if (usable(file)) return file;
    at = end + 1;
  }
  return Fail(std::format("{} is not in PATH ({})", program, path));
}

Result<> CheckTarget(const wire::Launch& launch, const os::Slot& slot, const std::string& node) {
  XMPI_RETURN_IF_ERROR(CheckNamespaces(slot));
  for (const wire::RankSpec& rank : launch.ranks()) {
    const std::string& directory = rank.working_directory();
    struct stat info{};
    if (!directory.empty() && (stat(directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)))
      return Fail(ErrorCode::kRefused,
                  std::format("the working directory of rank {}, {}, is not on {}", rank.rank(),
                              directory, node));
    const auto program =
        FindProgram(rank.argv().empty() ? "" : rank.argv(0), directory, PathOf(launch, rank));
    if (!program)
      return Fail(ErrorCode::kRefused, std::format("the program of rank {} is not on {}: {}",
                                                   rank.rank(), node, program.error().message));
  }
  return {};
}

wire::NodeFacts LookAtNode(const Here& here) {
  wire::NodeFacts facts = preflight::LookAtNode(here.node, here.version);
  if (here.criu) {
    facts.set_criu_version(here.criu->version);
  } else {
    facts.set_criu_error(here.criu.error().message);
  }
  facts.set_namespaces(here.slot->has_namespaces());
  for (const std::string& lost : here.slot->lost()) facts.add_lost(lost);
  return facts;
}

wire::SourceFacts LookAtSource(const Here& here, const wire::Launch& launch, const Living& ranks) {
  wire::SourceFacts facts;
  for (const preflight::RankToLookAt& look : ToLookAt(ranks)) {
    wire::RankFacts& rank = *facts.add_ranks();
    rank = preflight::LookAtRank(look);
    rank.set_cpu_baseline(BaselineOf(launch, look.rank));
  }
  AddStrays(*here.slot, ranks, &facts);
  *facts.mutable_node() = LookAtNode(here);  // last: the clock in it is compared with the target's
  return facts;
}

Result<std::string> AnswerFacts(const Here& here, const std::string& facts) {
  wire::SourceFacts source;
  if (!source.ParseFromString(facts))
    return Fail(ErrorCode::kProtocol, "the source's facts cannot be read");
  const wire::NodeFacts target = LookAtNode(here);
  preflight::Files files;
  preflight::Answers answers;
  for (const std::string& path : preflight::PathsToAsk(source))
    answers[path] = files.At(path, true);
  return preflight::Compare(source, target, answers, {.carry_files = here.carry_files})
      .SerializeAsString();
}

Result<> JudgeFindings(const std::string& text) {
  wire::Findings findings;
  if (!findings.ParseFromString(text))
    return Fail(ErrorCode::kProtocol, "the target's findings cannot be read");
  for (const wire::Finding& finding : findings.findings()) {
    if (finding.severity() == wire::Finding::WARN)
      log::Warn("preflight.warning", {{"what", preflight::Sentence(finding)}});
  }
  if (!preflight::Refuses(findings)) return {};
  return Fail(ErrorCode::kRefused, "preflight: " + preflight::Refusals(findings));
}

Result<> CheckParked(const Here& here, const Living& ranks) {
  wire::SourceFacts facts;
  facts.mutable_node()->set_node(here.node);
  for (const preflight::RankToLookAt& look : ToLookAt(ranks))
    *facts.add_ranks() = preflight::LookAtHoldings(look);
  AddStrays(*here.slot, ranks, &facts);
  const wire::Findings findings = preflight::CheckParked(facts);
  if (!preflight::Refuses(findings)) return {};
  return Fail(ErrorCode::kRefused, "cannot dump: " + preflight::Refusals(findings));
}

std::uint64_t MemoryBytes() {
  struct sysinfo info{};
  if (sysinfo(&info) != 0) return 0;
  return static_cast<std::uint64_t>(info.totalram) * info.mem_unit;
}

}  // namespace xmpi::proxy
