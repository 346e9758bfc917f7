#include "preflight/compare.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <format>
#include <set>
#include <utility>

#include "preflight/cpu.h"
#include "preflight/held.h"
#include "preflight/pids.h"

namespace xmpi::preflight {
namespace {

using wire::Finding;
using wire::Findings;

// Clocks of one cluster are nearer to each other than this when anything keeps them so.
constexpr std::int64_t kSkewUs = 2'000'000;
// An image lies in the target's memory beside the rank that is restored from it.
constexpr std::uint64_t kTimesOnTarget = 2;

Finding& Add(Findings* findings, Finding::Severity severity, const std::string& node,
             std::string what, std::string why, std::string remedy) {
  Finding& finding = *findings->add_findings();
  finding.set_severity(severity);
  finding.set_node(node);
  finding.set_what(std::move(what));
  finding.set_why(std::move(why));
  finding.set_remedy(std::move(remedy));
  finding.set_fd(-1);
  return finding;
}

std::string Joined(const auto& words, std::string_view between) {
  std::string text;
  for (const auto& word : words) {
    if (!text.empty()) text += between;
    text += word;
  }
  return text;
}

std::string Bytes(std::uint64_t bytes) {
  constexpr std::uint64_t kMega = 1'000'000;
  return bytes < kMega ? std::format("{} bytes", bytes) : std::format("{} MB", bytes / kMega);
}

std::string Hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += std::format("{:02x}", static_cast<unsigned char>(c));
  return text.substr(0, 12);
}

// ---- nodes

std::pair<int, int> SeriesOf(const std::string& release) {
  int major = 0, minor = 0;
  const char* end = release.data() + release.size();
  const auto [at, error] = std::from_chars(release.data(), end, major);
  if (error == std::errc() && at != end) std::from_chars(at + 1, end, minor);
  return {major, minor};
}

void CompareKernels(const wire::NodeFacts& source, const wire::NodeFacts& target,
                    Findings* findings) {
  if (source.machine() != target.machine()) {
    Add(findings, Finding::REFUSE, target.node(),
        std::format("{} is {}, {} is {}", target.node(), target.machine(), source.node(),
                    source.machine()),
        "a rank's code runs on one kind of machine only", "choose a target of the same kind");
  }
  if (SeriesOf(target.kernel()) < SeriesOf(source.kernel())) {
    Add(findings, Finding::REFUSE, target.node(),
        std::format("the kernel of {}, {}, is older than that of {}, {}", target.node(),
                    target.kernel(), source.node(), source.kernel()),
        "a rank, its libc or CRIU may use what the older one does not have",
        "boot the same kernel series on both");
  }
}

void CompareCpus(const wire::NodeFacts& source, const wire::NodeFacts& target,
                 std::string_view baseline, Findings* findings) {
  const auto extensions = MissingExtensions(source.cpu(), target.cpu(), baseline);
  const auto state = MissingState(source.cpu(), target.cpu(), baseline);
  const std::string remedy =
      "choose a target with the same CPU features, or start the job with -cpu-baseline and the "
      "level that all nodes have";
  if (!extensions.empty()) {
    Add(findings, Finding::REFUSE, target.node(),
        std::format("the CPU of {} lacks {}, which {} has", target.node(), Joined(extensions, ", "),
                    source.node()),
        "libc, MPI or the program may have chosen code that uses it, and would die of SIGILL",
        remedy);
  }
  if (!state.empty()) {
    Add(findings, Finding::REFUSE, target.node(),
        std::format("{} does not keep the {} registers, {} does", target.node(),
                    Joined(state, " and "), source.node()),
        "their contents could not be restored", remedy);
  }
  const bool smaller = target.cpu().xsave_bytes() < source.cpu().xsave_bytes();
  const bool same_state = (source.cpu().xcr0() & ~target.cpu().xcr0()) == 0;
  if (smaller && same_state) {
    Add(findings, Finding::REFUSE, target.node(),
        std::format("the XSAVE area of {} has {} bytes, that of {} has {}", target.node(),
                    target.cpu().xsave_bytes(), source.node(), source.cpu().xsave_bytes()),
        "the ranks' registers do not fit into it", remedy);
  }
}

void CompareClocks(const wire::NodeFacts& source, const wire::NodeFacts& target,
                   Findings* findings) {
  const std::int64_t skew_us = target.time_us() - source.time_us();
  if (std::abs(skew_us) <= kSkewUs || source.time_us() == 0 || target.time_us() == 0) return;
  Add(findings, Finding::WARN, target.node(),
      std::format("the clock of {} is {:.1f} s {} that of {}", target.node(),
                  static_cast<double>(std::abs(skew_us)) / 1e6, skew_us < 0 ? "behind" : "ahead of",
                  source.node()),
      "time(), and the times of files, jump by that for a rank that moves",
      "let NTP or PTP keep the clocks of both");
}

void CompareLibraries(const wire::NodeFacts& source, const wire::NodeFacts& target,
                      Findings* findings) {
  for (const wire::FileFacts& ours : source.libraries()) {
    for (const wire::FileFacts& theirs : target.libraries()) {
      if (ours.path() != theirs.path() || ours.build_id() == theirs.build_id()) continue;
      Add(findings, Finding::REFUSE, target.node(),
          std::format("{} is another build on {} ({}) than on {} ({})", ours.path(), target.node(),
                      Hex(theirs.build_id()), source.node(), Hex(ours.build_id())),
          "a rank that maps it cannot be restored over another build",
          "install the same package version on both nodes");
    }
  }
}

// ---- files

void CompareMapped(const wire::FileFacts& here, const wire::FileFacts* there,
                   const std::string& node, std::uint32_t rank, Findings* findings) {
  if (there == nullptr || !there->is_regular())
    return RefuseRank(findings, node, rank, std::format("{} is not on {}", here.path(), node),
                      "it is mapped into the rank, and its pages are read from there",
                      "install the same software on both nodes, or keep it on shared storage");
  const bool has_ids = !here.build_id().empty() || !there->build_id().empty();
  const bool same = has_ids ? here.build_id() == there->build_id() : here.size() == there->size();
  if (same) return;
  RefuseRank(findings, node, rank,
             has_ids ? std::format("{} is another build on {} (build-id {}, here {})", here.path(),
                                   node, Hex(there->build_id()), Hex(here.build_id()))
                     : std::format("{} has {} bytes on {}, here {}", here.path(), there->size(),
                                   node, here.size()),
             "the rank's pointers are into this build's code",
             "install the same version on both nodes");
}

void CompareFiles(const wire::SourceFacts& source, const wire::NodeFacts& target,
                  const Answers& answers, Findings* findings) {
  for (const wire::RankFacts& rank : source.ranks()) {
    for (const wire::FileFacts& file : rank.mapped()) {
      const auto found = answers.find(file.path());
      CompareMapped(file, found == answers.end() ? nullptr : &found->second, target.node(),
                    rank.rank(), findings);
    }
  }
}

// ---- memory

void CompareMemory(const wire::SourceFacts& source, const wire::NodeFacts& target,
                   Findings* findings) {
  std::uint64_t bytes = 0, huge_bytes = 0;
  for (const wire::RankFacts& rank : source.ranks()) {
    bytes += rank.memory_bytes();
    for (const wire::Held& held : rank.holds())
      if (held.kind() == wire::Held::HUGE_PAGES) huge_bytes += held.bytes();
  }
  const auto add = [&](const wire::NodeFacts& node, std::uint64_t needed, const char* why) {
    if (node.memory_room_bytes() >= needed) return;
    Add(findings, Finding::REFUSE, node.node(),
        std::format("{} has room for {}, and the move needs {} there ({} bounds it)", node.node(),
                    Bytes(node.memory_room_bytes()), Bytes(needed), node.memory_bound()),
        why, "free memory there, raise the limit, or choose another target");
  };
  add(target, kTimesOnTarget * bytes,
      "the images lie in memory beside the ranks that are restored from them");
  add(source.node(), bytes, "the images are made in memory beside the ranks");
  if (huge_bytes > target.free_huge_bytes()) {
    Add(findings, Finding::REFUSE, target.node(),
        std::format("the ranks have {} in huge pages, and {} has {} of them free",
                    Bytes(huge_bytes), target.node(), Bytes(target.free_huge_bytes())),
        "such memory can only be restored in huge pages",
        "raise vm.nr_hugepages there, or run the program without them");
  }
}

// ---- CRIU and privilege

void CheckCriu(const wire::NodeFacts& node, Findings* findings) {
  if (node.criu_error().empty()) return;
  Add(findings, Finding::REFUSE, node.node(),
      std::format("CRIU is of no use on {}: {}", node.node(), node.criu_error()),
      "it takes the ranks' images and restores them",
      node.namespaces()
          ? std::string("install the package criu, version 4.0 or later, and look at what `criu "
                        "check` says")
          : std::format("do as root on {} what it says; CRIU must be 4.0 or later", node.node()));
}

// What a target without namespaces cannot give: another user, another clock, PIDs that are taken.
void ComparePrivilege(const wire::SourceFacts& source, const wire::NodeFacts& target,
                      Findings* findings) {
  if (target.namespaces()) return;
  const wire::NodeFacts& here = source.node();
  if (here.namespaces()) {
    Add(findings, Finding::REFUSE, target.node(),
        std::format("the ranks have namespaces on {}, and {} gives them none", here.node(),
                    target.node()),
        "their process ids and clocks cannot be restored without",
        "choose a target where xmpi-proxy has the privilege");
    return;
  }
  if (here.user() != target.user()) {
    Add(findings, Finding::REFUSE, target.node(),
        std::format("the user is {} on {}, and {} on {}", here.user(), here.node(), target.user(),
                    target.node()),
        "without privilege a rank can only be restored as the user that it was",
        "give the user the same number on all nodes");
  }
  for (const wire::PidInUse& use : target.pids_in_use()) {
    Add(findings, Finding::REFUSE, target.node(),
        std::format("on {} {}", target.node(), Describe(use)),
        "a rank has that number, and without a PID namespace it keeps it where it moves",
        "end that process, choose another target, or start the job as root");
  }
}

std::string BaselineOf(const wire::SourceFacts& source) {
  std::string weakest = source.ranks().empty() ? "" : "x86-64-v2";
  for (const wire::RankFacts& rank : source.ranks()) {
    if (rank.cpu_baseline().empty()) return "";
    weakest = std::max(weakest, rank.cpu_baseline());
  }
  return weakest;
}

}  // namespace

std::vector<std::string> PathsToAsk(const wire::SourceFacts& source) {
  std::set<std::string> paths;
  for (const wire::RankFacts& rank : source.ranks()) {
    for (const wire::FileFacts& file : rank.mapped()) paths.insert(file.path());
  }
  return {paths.begin(), paths.end()};
}

Findings CheckNode(const wire::NodeFacts& node) {
  Findings findings;
  CheckCriu(node, &findings);
  if (!node.namespaces()) {
    Add(&findings, Finding::WARN, node.node(),
        std::format("{} gives a job no namespaces: {}", node.node(), Joined(node.lost(), "; ")),
        "a rank keeps its process ids when it moves, and its clock is then the other node's",
        "start jobs as root where that matters");
  }
  return findings;
}

Findings CompareNodes(const wire::NodeFacts& source, const wire::NodeFacts& target,
                      std::string_view baseline) {
  Findings findings;
  CompareKernels(source, target, &findings);
  CompareCpus(source, target, baseline, &findings);
  CompareClocks(source, target, &findings);
  CompareLibraries(source, target, &findings);
  return findings;
}

Findings Compare(const wire::SourceFacts& source, const wire::NodeFacts& target,
                 const Answers& answers) {
  Findings findings;
  CheckCriu(source.node(), &findings);
  CheckCriu(target, &findings);
  ComparePrivilege(source, target, &findings);
  CompareKernels(source.node(), target, &findings);
  CompareCpus(source.node(), target, BaselineOf(source), &findings);
  CompareClocks(source.node(), target, &findings);
  CompareFiles(source, target, answers, &findings);
  CompareMemory(source, target, &findings);
  findings.MergeFrom(CheckHoldings(source));
  return findings;
}

Findings CheckHoldings(const wire::SourceFacts& source) {
  Findings findings;
  for (const wire::RankFacts& rank : source.ranks())
    CheckHeld(rank, source.node().node(), &findings);
  return findings;
}

void RefuseRank(Findings* findings, const std::string& node, std::uint32_t rank, std::string what,
                std::string why, std::string remedy) {
  for (Finding& known : *findings->mutable_findings()) {
    if (known.what() != what) continue;
    if (std::ranges::find(known.ranks(), rank) == known.ranks().end()) known.add_ranks(rank);
    return;
  }
  Add(findings, Finding::REFUSE, node, std::move(what), std::move(why), std::move(remedy))
      .add_ranks(rank);
}

bool Refuses(const Findings& findings) {
  return std::ranges::any_of(findings.findings(), [](const Finding& finding) {
    return finding.severity() == Finding::REFUSE;
  });
}

std::string Sentence(const Finding& finding) {
  std::string where;
  const auto add = [&](const std::string& part) { where += (where.empty() ? "" : ", ") + part; };
  if (!finding.ranks().empty()) {
    std::vector<std::string> ranks;
    for (const std::uint32_t rank : finding.ranks()) ranks.push_back(std::to_string(rank));
    add(std::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", Joined(ranks, ", ")));
  }
  if (finding.pid() != 0) add(std::format("PID {}", finding.pid()));
  if (finding.fd() >= 0) add(std::format("descriptor {}", finding.fd()));
  return std::format("{}{}{}{}: {}; {}", finding.what(), where.empty() ? "" : " (", where,
                     where.empty() ? "" : ")", finding.why(), finding.remedy());
}

std::string Refusals(const Findings& findings) {
  std::vector<std::string> sentences;
  for (const Finding& finding : findings.findings()) {
    if (finding.severity() == Finding::REFUSE) sentences.push_back(Sentence(finding));
  }
  if (sentences.size() == 1) return sentences.front();
  std::string text;
  for (std::size_t i = 0; i < sentences.size(); ++i)
    text += std::format("{}({}) {}", i == 0 ? "" : " ", i + 1, sentences[i]);
  return text;
}

}  // namespace xmpi::preflight
