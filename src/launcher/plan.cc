#include "launcher/plan.h"

#include <algorithm>
#include <csignal>
#include <deque>
#include <filesystem>
#include <format>
#include <map>
#include <numeric>

#include "launcher/environment.h"
#include "pmi/mapping.h"

namespace xmpi::launcher {
namespace {

struct Seat {
  std::string node;
  std::uint32_t per_round = 1;
  std::optional<SlotId> slot;  // once it has a rank
};

// Hands out seats in turn, `per_round` ranks at a time.
class Pool {
 public:
  void Add(Seat* seat) { seats_.push_back(seat); }
  std::uint32_t ranks_per_round() const {
    return std::accumulate(
        seats_.begin(), seats_.end(), 0u,
        [](std::uint32_t sum, const Seat* seat) { return sum + seat->per_round; });
  }
  bool Holds(const Seat* seat) const { return std::ranges::find(seats_, seat) != seats_.end(); }
  Seat& Next() {
    if (taken_ == seats_[at_]->per_round) {
      at_ = (at_ + 1) % seats_.size();
      taken_ = 0;
    }
    ++taken_;
    return *seats_[at_];
  }

 private:
  std::vector<Seat*> seats_;
  std::size_t at_ = 0;
  std::uint32_t taken_ = 0;
};

class Planner {
 public:
  Planner(const Options& options, const std::vector<Host>& hosts, const Surroundings& around)
      : options_(options), hosts_given_(!hosts.empty()), around_(around) {
    for (const Host& host : hosts) all_.Add(NewSeat(host));
    if (!hosts_given_) all_.Add(NewSeat({around.hostname, kRanksLimit}));
  }

  Result<core::JobPlan> Make() {
    for (std::size_t i = 0; i < options_.segments.size(); ++i) {
      XMPI_RETURN_IF_ERROR(Place(options_.segments[i], static_cast<std::uint32_t>(i)));
    }
    XMPI_ASSIGN_OR_RETURN(plan_.process_mapping, pmi::BuildMapping(slot_of_rank_));
    plan_.job = options_.job.empty() ? JobName() : options_.job;
    plan_.spares = options_.spares;
    plan_.universe_size = UniverseSize();
    plan_.bind_to = options_.bind_to;
    plan_.inherit_environment = InheritedNames();
    plan_.timeouts = options_.phase_timeouts;
    return std::move(plan_);
  }

 private:
  Seat* NewSeat(const Host& host) {
    const std::uint32_t count = host.count == 0 ? 1 : host.count;
    return &seats_.emplace_back(Seat{host.name, options_.ranks_per_host.value_or(count), {}});
  }

  // The seats of the segment's own hosts; those the job has already are shared.
  Pool PoolOf(const Segment& segment) {
    Pool pool;
    for (const Host& host : segment.hosts) {
      const auto known = std::ranges::find_if(
          seats_, [&](const Seat& seat) { return seat.node == host.name && !pool.Holds(&seat); });
      pool.Add(known == seats_.end() ? NewSeat(host) : &*known);
    }
    return pool;
  }

  Result<> Place(const Segment& segment, std::uint32_t appnum) {
    Pool own = PoolOf(segment);
    const bool named = hosts_given_ || !segment.hosts.empty();
    Pool& pool = segment.hosts.empty() ? all_ : own;
    const std::uint32_t fallback = named ? pool.ranks_per_round() : 1;
    const std::uint32_t ranks = segment.ranks.value_or(fallback);
    if (ranks > kRanksLimit - slot_of_rank_.size())
      return Fail(ErrorCode::kUsage, std::format("a job has at most {} ranks", kRanksLimit));
    const wire::RankSpec spec = SpecOf(segment, appnum);
    for (std::uint32_t i = 0; i < ranks; ++i) AddRank(pool.Next(), spec);
    return {};
  }

  wire::RankSpec SpecOf(const Segment& segment, std::uint32_t appnum) const {
    const auto folder =
        std::filesystem::path(around_.working_directory) / segment.working_directory.value_or(".");
    std::string working_directory = folder.lexically_normal().string();
    if (working_directory.size() > 1 && working_directory.ends_with('/'))
      working_directory.pop_back();
    wire::RankSpec spec;
    spec.set_appnum(appnum);
    spec.set_working_directory(working_directory);
    for (const std::string& argument : segment.argv) spec.add_argv(argument);
    for (const auto& [name, value] :
         RankEnvironment(options_, segment, around_.environment, working_directory)) {
      wire::EnvironmentVariable& variable = *spec.add_environment();
      variable.set_name(name);
      variable.set_value(value);
    }
    return spec;
  }

  void AddRank(Seat& seat, const wire::RankSpec& spec) {
    if (!seat.slot) {
      seat.slot = static_cast<SlotId>(plan_.slots.size());
      plan_.slots.push_back({.node = seat.node});
    }
    const RankId rank = static_cast<RankId>(slot_of_rank_.size());
    wire::RankSpec& added = plan_.slots[*seat.slot].ranks.emplace_back(spec);
    added.set_rank(rank);
    added.set_takes_stdin(rank == 0);
    slot_of_rank_.push_back(*seat.slot);
  }

  std::string JobName() const {
    std::string name = std::filesystem::path(options_.segments[0].argv[0]).filename().string();
    std::erase_if(name, [](unsigned char c) { return !std::isalnum(c) && c != '_' && c != '-'; });
    name = name.substr(0, limits::kJobNameBytes / 2);
    return std::format("{}-{}", name.empty() || name[0] == '-' ? "job" : name, around_.pid);
  }

  std::int32_t UniverseSize() const {
    switch (options_.universe) {
      case Options::Universe::kNumber:
        return options_.universe_size;
      case Options::Universe::kInfinite:
        return -1;
      case Options::Universe::kSystem:
        if (hosts_given_) return static_cast<std::int32_t>(all_.ranks_per_round());
        break;
      case Options::Universe::kRanks:
        break;
    }
    return static_cast<std::int32_t>(slot_of_rank_.size());
  }

  const Options& options_;
  const bool hosts_given_;
  const Surroundings& around_;
  std::deque<Seat> seats_;  // addresses stay valid
  Pool all_;
  core::JobPlan plan_;
  std::vector<SlotId> slot_of_rank_;
};

}  // namespace

Result<core::JobPlan> MakePlan(const Options& options, const std::vector<Host>& hosts,
                               const Surroundings& around) {
  return Planner(options, hosts, around).Make();
}

std::string PortShortage(const core::JobPlan& plan, os::PortRange range) {
  if (range.low == 0) return "";
  const std::size_t ports = range.high - range.low + 1u;
  std::map<std::string, std::size_t> ranks_on;
  for (const core::SlotPlan& slot : plan.slots) ranks_on[slot.node] += slot.ranks.size();
  for (const auto& [node, ranks] : ranks_on) {
    if (ranks > ports)
      return std::format(
          "-port-range {}:{} has {} ports for {} ranks on {}: MPI over TCP waits for ever for a "
          "port for each; give a wider one",
          range.low, range.high, ports, ranks, node);
  }
  return "";
}

}  // namespace xmpi::launcher
