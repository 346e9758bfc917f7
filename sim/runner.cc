#include "sim/runner.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <format>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

namespace xmpi::sim {
namespace {

// A broken CHECK of the core ends the process: then at least the seed is known.
thread_local std::uint64_t current_seed = 0;

void OnAbort(int) {
  char text[64];
  const int length = std::snprintf(text, sizeof text, "seed %llu: broken invariant of the code\n",
                                   static_cast<unsigned long long>(current_seed));
  std::fwrite(text, 1, static_cast<std::size_t>(length), stderr);
}

std::string Sentence(const std::string& violation) {
  return violation.substr(0, violation.find(':'));
}

// Everything that can be taken away from a scenario, one thing at a time.
std::vector<Scenario> Smaller(const Scenario& scenario) {
  std::vector<Scenario> smaller;
  for (std::size_t i = 0; i < scenario.faults.size(); ++i) {
    Scenario less = scenario;
    less.faults.erase(less.faults.begin() + static_cast<std::ptrdiff_t>(i));
    smaller.push_back(std::move(less));
  }
  const auto with = [&](int Scenario::* field, int lowest) {
    if (scenario.*field <= lowest) return;
    Scenario less = scenario;
    --(less.*field);
    smaller.push_back(std::move(less));
  };
  with(&Scenario::moves, 1);
  with(&Scenario::spares, 1);
  with(&Scenario::ranks_per_slot, 1);
  if (!scenario.share_node) with(&Scenario::slots, 1);
  const auto without = [&](bool Scenario::* field) {
    if (!(scenario.*field)) return;
    Scenario less = scenario;
    less.*field = false;
    smaller.push_back(std::move(less));
  };
  without(&Scenario::last_move);
  without(&Scenario::name_target);
  without(&Scenario::share_node);
  return smaller;
}

void Add(Summary& summary, std::uint64_t seed, const RunResult& result) {
  ++summary.runs;
  summary.reached_handover += result.reached_handover;
  summary.jobs_survived += result.job_survived;
  summary.moves_done += static_cast<std::uint64_t>(result.moves_done);
  summary.events += result.events;
  summary.simulated_s += static_cast<double>(result.simulated) / kSecond;
  for (int phase = 0; phase < core::kPhases; ++phase) {
    for (int kind = 0; kind < kFaultKinds; ++kind)
      summary.hits[phase][kind] += result.hits[phase][kind];
  }
  if (!result.violation.empty()) summary.failures.push_back({seed, result.violation});
}

}  // namespace

RunResult RunScenario(const Scenario& scenario, bool tracing) {
  current_seed = scenario.seed;
  return World(scenario, tracing).Run();
}

bool FailsLike(const Scenario& scenario, const std::string& violation) {
  return Sentence(RunScenario(scenario, false).violation) == Sentence(violation);
}

Scenario Shrink(Scenario scenario, const std::function<bool(const Scenario&)>& fails) {
  for (bool again = true; again;) {
    again = false;
    for (const Scenario& less : Smaller(scenario)) {
      if (!fails(less)) continue;
      scenario = less;
      again = true;
      break;
    }
  }
  return scenario;
}

std::string Explain(const Failure& failure) {
  const Scenario smallest = Shrink(MakeScenario(failure.seed), [&](const Scenario& less) {
    return FailsLike(less, failure.violation);
  });
  return std::format("seed {} made smaller:\n{}", failure.seed,
                     RunScenario(smallest, true).transcript);
}

Summary RunSeeds(std::uint64_t first, std::uint64_t last, unsigned threads) {
  std::signal(SIGABRT, OnAbort);
  const auto began = std::chrono::steady_clock::now();
  Summary summary;
  summary.first = first;
  summary.last = last;
  std::atomic<std::uint64_t> next = first;
  std::mutex mutex;
  const auto work = [&] {
    for (;;) {
      const std::uint64_t seed = next.fetch_add(1);
      if (seed > last) return;
      const RunResult result = RunScenario(MakeScenario(seed), false);
      const std::lock_guard lock(mutex);
      Add(summary, seed, result);
    }
  };
  {
    std::vector<std::jthread> workers;
    for (unsigned i = 0; i < std::max(1u, threads); ++i) workers.emplace_back(work);
  }
  std::ranges::sort(summary.failures, {}, &Failure::seed);
  summary.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return summary;
}

std::string ToJson(const Summary& summary) {
  nlohmann::ordered_json json;
  json["seeds"] = {summary.first, summary.last};
  json["runs"] = summary.runs;
  json["violations"] = summary.failures.size();
  json["reached_handover"] = summary.reached_handover;
  json["jobs_survived"] = summary.jobs_survived;
  json["moves_done"] = summary.moves_done;
  json["events"] = summary.events;
  json["simulated_s"] = summary.simulated_s;
  json["wall_s"] = summary.wall_s;
  for (int phase = 0; phase < core::kPhases; ++phase) {
    auto& row = json["hits"][std::string(Name(static_cast<core::Phase>(phase)))];
    for (int kind = 0; kind < kFaultKinds; ++kind) {
      const bool possible =
          CanStrike(static_cast<FaultKind>(kind), static_cast<core::Phase>(phase));
      auto& cell = row[std::string(Name(static_cast<FaultKind>(kind)))];
      if (possible) cell = summary.hits[phase][kind];
    }
  }
  for (const Failure& failure : summary.failures)
    json["failures"].push_back({{"seed", failure.seed}, {"violation", failure.violation}});
  return json.dump(2);
}

std::string HistogramTable(const Histogram& hits) {
  std::string table = std::format("{:18}", "");
  for (int phase = 0; phase < core::kPhases; ++phase)
    table += std::format("{:>10}", Name(static_cast<core::Phase>(phase)));
  table += "\n";
  for (int kind = 0; kind < kFaultKinds; ++kind) {
    table += std::format("{:18}", Name(static_cast<FaultKind>(kind)));
    for (int phase = 0; phase < core::kPhases; ++phase) {
      const bool possible =
          CanStrike(static_cast<FaultKind>(kind), static_cast<core::Phase>(phase));
      table += possible ? std::format("{:>10}", hits[phase][kind]) : std::format("{:>10}", "-");
    }
    table += "\n";
  }
  return table;
}

}  // namespace xmpi::sim
