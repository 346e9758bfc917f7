// xmpi-sim: deterministic runs of a whole job, with faults, against the invariants.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <format>
#include <fstream>
#include <thread>

#include "sim/runner.h"

namespace xmpi::sim {
namespace {

constexpr std::size_t kFailuresShown = 10;

void Print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

int RunOne(std::uint64_t seed, bool trace, bool shrink) {
  const RunResult result = RunScenario(MakeScenario(seed), trace);
  if (trace) Print(result.transcript);
  Print(std::format("seed {}: {} events, {:.1f} s simulated, {} moves, {}\n", seed, result.events,
                    static_cast<double>(result.simulated) / kSecond, result.moves_done,
                    result.violation.empty() ? "every invariant held" : result.violation));
  if (result.violation.empty()) return 0;
  if (shrink) Print("\n" + Explain({seed, result.violation}));
  return 1;
}

int RunMany(std::uint64_t first, std::uint64_t last, unsigned threads, const std::string& json,
            bool shrink) {
  const Summary summary = RunSeeds(first, last, threads);
  Print(HistogramTable(summary.hits));
  Print(std::format(
      "{} runs in {:.1f} s: {} reached handover, {} jobs survived, {} moves done, "
      "{:.0f} events a run, {} violations\n",
      summary.runs, summary.wall_s, summary.reached_handover, summary.jobs_survived,
      summary.moves_done, static_cast<double>(summary.events) / static_cast<double>(summary.runs),
      summary.failures.size()));
  for (std::size_t i = 0; i < std::min(kFailuresShown, summary.failures.size()); ++i)
    Print(std::format("seed {}: {}\n", summary.failures[i].seed, summary.failures[i].violation));
  if (!json.empty()) {
    std::ofstream file(json);
    file << ToJson(summary) << "\n";
    if (!file.flush()) {
      std::fprintf(stderr, "xmpi-sim: cannot write %s\n", json.c_str());
      return 2;
    }
  }
  if (summary.failures.empty()) return 0;
  if (shrink) Print("\n" + Explain(summary.failures.front()));
  return 1;
}

int Main(int argc, char** argv) {
  CLI::App app{
      "Runs a whole job under faults, deterministically, and checks that no rank is lost."};
  std::uint64_t seed = 0;
  std::string seeds, json;
  bool trace = false;
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  auto* one = app.add_option("--seed", seed, "Run this seed; a failing one is also made smaller");
  app.add_flag("--trace", trace, "Print the whole transcript")->needs(one);
  app.add_option("--seeds", seeds, "Run a range of seeds, A..B")->excludes(one);
  app.add_option("--json", json, "Write the counts to this file");
  bool no_shrink = false;
  app.add_flag("--no-shrink", no_shrink, "Do not look for a smaller scenario that fails, too");
  app.add_option("--threads", threads, "Runs at a time");
  CLI11_PARSE(app, argc, argv);
  if (one->count() > 0) return RunOne(seed, trace, !trace && !no_shrink);
  unsigned long long first = 0, last = 0;
  if (std::sscanf(seeds.c_str(), "%llu..%llu", &first, &last) != 2 || first > last) {
    std::fprintf(stderr, "xmpi-sim: say --seed S or --seeds A..B\n");
    return 2;
  }
  return RunMany(first, last, threads, json, !no_shrink);
}

}  // namespace
}  // namespace xmpi::sim

int main(int argc, char** argv) { return xmpi::sim::Main(argc, argv); }
