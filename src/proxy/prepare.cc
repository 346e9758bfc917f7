#include "proxy/prepare.h"

#include <fcntl.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <format>
#include <thread>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "criu/process_tree.h"
#include "preflight/baseline.h"
#include "preflight/compare.h"
#include "preflight/files.h"
#include "preflight/held.h"
#include "preflight/node_facts.h"
#include "preflight/pids.h"
#include "preflight/rank_facts.h"

namespace xmpi::proxy {
namespace {

using preflight::ClosingSockets;

// All processes of a rank as this node numbers them, and its ends of what ties it to us.
preflight::RankToLookAt ToLookAt(int proc_fd, RankId rank, const Ranks::Process& process,
                                 const ClosingSockets* closing) {
  preflight::RankToLookAt look{.rank = rank, .closing = closing};
  for (const criu::Process& each : criu::ReadTree(proc_fd, process.host_pid))
    look.pids.push_back(each.pid);
  for (const criu::Tie& tie : process.ties) look.ties.insert(tie.inode);
  return look;
}

std::vector<preflight::RankToLookAt> ToLookAt(const Living& ranks, const ClosingSockets* closing) {
  const Fd proc(open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  std::vector<preflight::RankToLookAt> looks;
  for (const auto& [rank, process] : ranks)
    looks.push_back(ToLookAt(proc.get(), rank, process, closing));
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

wire::SourceFacts LookAtRanks(const os::Slot& slot, const Living& ranks,
                              const ClosingSockets& closing) {
  wire::SourceFacts facts;
  for (const preflight::RankToLookAt& look : ToLookAt(ranks, &closing))
    *facts.add_ranks() = preflight::LookAtRank(look);
  AddStrays(slot, ranks, &facts);
  return facts;
}

// Only where the ranks would come to live among all others.
void AddPidsInUse(const wire::SourceFacts& source, wire::NodeFacts* target) {
  if (target->namespaces()) return;
  for (const wire::RankFacts& rank : source.ranks()) {
    const std::vector<std::uint32_t> needed(rank.pids_needed().begin(), rank.pids_needed().end());
    for (const wire::PidInUse& use : preflight::PidsInUse(needed)) *target->add_pids_in_use() = use;
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

wire::SourceFacts LookAtSource(const Here& here, const wire::Launch& launch, const Living& ranks,
                               const ClosingSockets& closing) {
  wire::SourceFacts facts = LookAtRanks(*here.slot, ranks, closing);
  if (preflight::Refuses(preflight::CheckHoldings(facts))) {
    // A request to a server, a command that ran: what is gone in a moment is in nobody's way.
    std::this_thread::sleep_for(limits::kHoldingLasts);
    const wire::SourceFacts earlier = std::exchange(facts, LookAtRanks(*here.slot, ranks, closing));
    preflight::KeepWhatLasts(earlier, &facts);
  }
  for (wire::RankFacts& rank : *facts.mutable_ranks()) {
    rank.set_cpu_baseline(BaselineOf(launch, rank.rank()));
    const pid_t root = ranks.at(rank.rank()).pid;
    for (const pid_t pid : criu::UsedPids(criu::ReadTree(here.slot->proc_fd(), root)))
      rank.add_pids_needed(static_cast<std::uint32_t>(pid));
  }
  *facts.mutable_node() = LookAtNode(here);  // last: the clock in it is compared with the target's
  return facts;
}

Result<std::string> AnswerFacts(const Here& here, const std::string& facts) {
  wire::SourceFacts source;
  if (!source.ParseFromString(facts))
    return Fail(ErrorCode::kProtocol, "the source's facts cannot be read");
  wire::NodeFacts target = LookAtNode(here);
  AddPidsInUse(source, &target);
  preflight::Files files;
  preflight::Answers answers;
  for (const std::string& path : preflight::PathsToAsk(source)) answers[path] = files.At(path);
  return preflight::Compare(source, target, answers).SerializeAsString();
}

Result<wire::Findings> ReadFindings(const std::string& text) {
  wire::Findings findings;
  if (!findings.ParseFromString(text))
    return Fail(ErrorCode::kProtocol, "the target's findings cannot be read");
  return findings;
}

Result<> JudgeFindings(const wire::Findings& findings) {
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
  for (const preflight::RankToLookAt& look : ToLookAt(ranks, nullptr))
    *facts.add_ranks() = preflight::LookAtHoldings(look);
  AddStrays(*here.slot, ranks, &facts);
  const wire::Findings findings = preflight::CheckHoldings(facts);
  if (!preflight::Refuses(findings)) return {};
  return Fail(ErrorCode::kRefused, "cannot dump: " + preflight::Refusals(findings));
}

std::uint64_t MemoryBytes() {
  struct sysinfo info{};
  if (sysinfo(&info) != 0) return 0;
  return static_cast<std::uint64_t>(info.totalram) * info.mem_unit;
}

}  // namespace xmpi::proxy
