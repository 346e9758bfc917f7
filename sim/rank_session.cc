// What MPICH does when a rank opens its session: init, put, fence, get, one more fence.
#include <format>

#include "sim/proxy.h"
#include "sim/rank_process.h"
#include "sim/world.h"

namespace xmpi::sim {
namespace {

enum PmiStep { kInit, kName, kPut, kFence, kGet, kLastFence };

// The value of `key` in a reply, up to a space.
std::string ValueOf(const std::string& line, const std::string& key) {
  const auto at = line.find(key + "=");
  if (at == line.npos) return "";
  const auto from = at + key.size() + 1;
  return line.substr(from, line.find_first_of(" \n", from) - from);
}

std::string Key(RankId rank) { return std::format("address-{}", rank); }

}  // namespace

void RankProcess::Open() {
  model_.generation += 1;
  model_.fences = 0;
  model_.barriers = 0;
  model_.pmi_step = kInit;
  SendPmi("cmd=init pmi_version=1 pmi_subversion=1");
}

void RankProcess::SendPmi(const std::string& line) { proxy_.OnRankPmi(*this, line + "\n"); }

void RankProcess::OnPmi(const std::string& line) {
  if (!alive()) return;
  if (model_.place == Place::kFinalizing) return After(kMs, &RankProcess::Exit);
  if (model_.place != Place::kOpening) return;
  const std::string address = std::format("instance{}.generation{}", instance_, model_.generation);
  switch (model_.pmi_step++) {
    case kInit:
      return SendPmi("cmd=get_my_kvsname");
    case kName:
      model_.kvs = ValueOf(line, "kvsname");
      world_.mpi().Open(this, address);
      return SendPmi(
          std::format("cmd=put kvsname={} key={} value={}", model_.kvs, Key(model_.rank), address));
    case kPut:
      ++model_.fences;
      return SendPmi("cmd=barrier_in");
    case kFence:
      model_.pmi_peer = 0;
      return AskNextPeer();
    case kGet: {
      const RankId peer = world_.mpi().NeighboursOf(model_.rank)[model_.pmi_peer++];
      model_.addresses[peer] = ValueOf(line, "value");
      return AskNextPeer();
    }
    case kLastFence:
      return After(world_.app().Between(100, 5 * kMs), &RankProcess::Opened);
  }
}

void RankProcess::AskNextPeer() {
  const auto peers = world_.mpi().NeighboursOf(model_.rank);
  if (model_.pmi_peer < peers.size()) {
    model_.pmi_step = kGet;
    return SendPmi(
        std::format("cmd=get kvsname={} key={}", model_.kvs, Key(peers[model_.pmi_peer])));
  }
  model_.pmi_step = kLastFence;
  ++model_.fences;
  SendPmi("cmd=barrier_in");
}

void RankProcess::Opened() {
  if (!model_.said_hello) {
    model_.said_hello = true;
    Tell(rank_link::Kind::kHello);
    return Compute();
  }
  model_.quiesce.Reopened();
  Tell(rank_link::Kind::kRunning);
  model_.in_stop = false;
  model_.place = Place::kSafePoint;
  Drain();
  Pass();
}

}  // namespace xmpi::sim
