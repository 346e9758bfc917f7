// Runs seeds: one, or a range over all cores; makes a failing scenario smaller; counts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/scenario.h"
#include "sim/world.h"

namespace xmpi::sim {

RunResult RunScenario(const Scenario& scenario, bool tracing);

// The smallest scenario found that still fails.
Scenario Shrink(Scenario scenario, const std::function<bool(const Scenario&)>& fails);
// Whether it breaks the same invariant: the sentence up to its colon.
bool FailsLike(const Scenario& scenario, const std::string& violation);

struct Failure {
  std::uint64_t seed = 0;
  std::string violation;
};
// The transcript of the smallest scenario found that fails in the same way.
std::string Explain(const Failure& failure);

struct Summary {
  std::uint64_t first = 0, last = 0;
  std::uint64_t runs = 0;
  std::uint64_t reached_handover = 0;
  std::uint64_t jobs_survived = 0;
  std::uint64_t moves_done = 0;
  std::uint64_t events = 0;
  double simulated_s = 0;
  double wall_s = 0;
  Histogram hits{};
  std::vector<Failure> failures;  // by seed
};

Summary RunSeeds(std::uint64_t first, std::uint64_t last, unsigned threads);
std::string ToJson(const Summary& summary);
std::string HistogramTable(const Histogram& hits);

}  // namespace xmpi::sim
