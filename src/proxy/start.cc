#include "proxy/start.h"

#include <fcntl.h>

#include <csignal>
#include <format>
#include <memory>
#include <optional>
#include <utility>

#include "os/pidfd.h"
#include "proxy/cores.h"
#include "proxy/environment.h"
#include "proxy/ties.h"

namespace xmpi::proxy {
namespace {

struct Started {
  RankId rank = 0;
  std::vector<TieEnds> ties{};
  os::Spawned process{};
};

// What is known of a start while the slot's init works on it.
struct Start {
  Ranks* ranks;
  StartDone done;
  CoreChoice cores;
  std::vector<Started> started;
  std::size_t outstanding = 0;
  std::optional<Error> failure;
};

void Finish(Start& start) {
  if (start.failure) {
    for (const Started& each : start.started)
      os::PidfdSendSignal(each.process.pidfd.get(), SIGKILL);
    start.ranks->ForgetExits();
    return start.done(std::unexpected(*start.failure));
  }
  std::vector<wire::RankPlace> places;
  for (Started& each : start.started) {
    wire::RankPlace& place = places.emplace_back();
    place.set_rank(each.rank);
    place.set_pid(static_cast<std::uint32_t>(each.process.host_pid));
    place.set_namespace_pid(static_cast<std::uint32_t>(each.process.pid));
    start.ranks->Add(each.rank, std::move(each.process), std::move(each.ties));
  }
  start.done(std::move(places));
  start.ranks->ReleaseExits();
}

os::SpawnRequest RequestFor(const wire::RankSpec& rank, const std::vector<TieEnds>& ties) {
  os::SpawnRequest request;
  request.argv.assign(rank.argv().begin(), rank.argv().end());
  request.cwd = rank.working_directory();
  request.own_time_namespace = true;
  for (const TieEnds& tie : ties)
    request.fds.push_back({.target = NumberInRank(tie.kind), .fd = tie.theirs.get()});
  return request;
}

std::string Failing(const NodeFacts& node, const wire::RankSpec& rank) {
  return std::format("rank {} could not be started on {}", rank.rank(), node.node);
}

}  // namespace

void StartRanks(const wire::Launch& launch, const NodeFacts& node, os::Slot* slot, Ranks* ranks,
                StartDone done) {
  auto start = std::make_shared<Start>(Start{.ranks = ranks,
                                             .done = std::move(done),
                                             .cores = {},
                                             .started = {},
                                             .outstanding = 1,
                                             .failure = {}});
  // A rank may end before the last one has begun.
  ranks->HoldExits();
  const auto settle = [start] {
    if (--start->outstanding == 0) Finish(*start);
  };
  const auto fail = [start](Error error) {
    if (!start->failure) start->failure = std::move(error);
  };
  const auto count = static_cast<std::size_t>(launch.ranks_size());
  Result<CoreChoice> cores = ChooseCoresHere(launch.bind_to(), count);
  if (cores) {
    start->cores = std::move(*cores);
  } else {
    fail(WithContext(node.node, cores.error()));
  }
  for (std::size_t i = 0; i < count && !start->failure; ++i) {
    const wire::RankSpec& rank = launch.ranks(static_cast<int>(i));
    Result<std::vector<TieEnds>> ties = MakeTies(rank.takes_stdin());
    if (!ties) {
      fail(WithContext(Failing(node, rank), ties.error()));
      break;
    }
    os::SpawnRequest request = RequestFor(rank, *ties);
    request.env = EnvironmentOf({.launch = launch,
                                 .rank = rank,
                                 .hostname = node.hostname,
                                 .node = node.environment,
                                 .local_rank = static_cast<int>(i)});
    request.cpus = start->cores.cpus[i];
    // The slot passes the rank's ends on at once; ours to keep are the other ones.
    auto ours = std::make_shared<std::vector<TieEnds>>(std::move(*ties));
    ++start->outstanding;
    const auto id = rank.rank();
    slot->Spawn(request, [=, failing = Failing(node, rank)](Result<os::Spawned>&& spawned) {
      if (spawned) {
        start->started.push_back({id, std::move(*ours), std::move(*spawned)});
      } else {
        fail(WithContext(failing, spawned.error()));
      }
      settle();
    });
    for (TieEnds& tie : *ours) tie.theirs.Close();
  }
  settle();
}

}  // namespace xmpi::proxy
