// Proxy: a simulated xmpi-proxy: the real core::Agent, its end of the link, its ranks, and the
// shell's work with simulated times and failures (start, preflight, dump, image transfer, restore).
// Each piece of ordered work is answered as src/proxy answers it: once, and not at all when the
// order was withdrawn.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "core/agent.h"
#include "sim/link.h"
#include "sim/node.h"
#include "sim/rank_process.h"
#include "sim/scenario.h"

namespace xmpi::sim {

class World;

// One rank's checkpoint: the process's memory, and what goes with it.
struct Image {
  RankModel model{};
  wire::RankImage facts{};
};

class Proxy : public std::enable_shared_from_this<Proxy> {
 public:
  Proxy(World* world, ProxyId id, Node* node, std::shared_ptr<Link> link);

  const ProxyId& id() const { return id_; }
  Node& node() const { return node_; }
  bool alive() const { return alive_; }
  const core::Agent& agent() const { return agent_; }
  Link& link() const { return *link_; }
  const std::map<RankId, std::shared_ptr<RankProcess>>& ranks() const { return ranks_; }
  // Every image of the slot is here, whole and verified.
  bool holds_images() const { return arrived_ && arrived_error_.empty(); }
  bool leaving() const { return leaving_; }

  void Begin();
  // The process ends here and now; all that it holds ends with it.
  void Die(const std::string& why);

  void OnMessage(wire::Envelope envelope);
  void OnRankSays(RankProcess& rank, core::RankMessage message);
  void OnRankPmi(RankProcess& rank, std::string bytes);
  void OnRankEnded(RankProcess& rank, std::uint32_t wait_status);
  void CrashRank(RankProcess& rank);

 private:
  void After(Time delay, std::function<void()> what);
  void Deliver(core::AgentEvent event);
  void Perform(core::ToLauncher& action);
  void Perform(core::ToRank& action);
  void Perform(core::SignalRank& action);
  void Perform(core::ToPmi& action);
  void Perform(core::ClosePmi& action);
  void Perform(core::StartRanks& action);
  void Perform(core::OpenTarget& action);
  void Perform(core::ConnectSource& action);
  void Perform(core::DumpRanks& action);
  void Perform(core::EndTransfer& action);
  void Perform(core::RestoreRanks& action);
  void Perform(core::ContinueRanks& action);
  void Perform(core::EndRanks& action);
  void Perform(core::Leave& action);
  void Perform(core::AgentLog& action);

  // proxy_work.cc
  void AddRank(RankModel model);
  std::vector<wire::RankPlace> Places() const;
  void DumpOne(RankProcess& rank, std::uint64_t work, bool fails);
  void EndDump(std::uint64_t work, const std::string& error);
  void SendHeldImages(std::uint64_t work);
  void SendImage(std::uint64_t work, Image image, Time began);
  bool OnImage(Image image);
  void OnImagesCannotCome(std::uint64_t connection, const std::string& error);
  void BreakImageConnection();
  void RestoreAll();
  void SayGoodbye();

  // Delays to and from a rank keep the order of each of its sockets.
  Time InOrder(Time& last, Time delay);

  World& world_;
  const ProxyId id_;
  Node& node_;
  std::shared_ptr<Link> link_;
  core::Agent agent_;
  bool alive_ = true;
  bool leaving_ = false;
  std::map<RankId, std::shared_ptr<RankProcess>> ranks_;
  struct Sockets {
    Time control_in = 0, control_out = 0, pmi_in = 0, pmi_out = 0;
  };
  std::map<RankId, Sockets> sockets_;
  wire::Launch launch_;

  std::uint64_t connects_ = 0;          // the number of the newest order to connect
  std::uint64_t work_ = 0;              // the number of the dump or restore under way
  std::vector<wire::RankImage> facts_;  // that go with the images
  std::vector<wire::RankImage> dumped_;
  std::size_t dumps_left_ = 0;
  std::optional<Fault> image_fault_;

  std::weak_ptr<Proxy> image_peer_;  // of a source: the candidate it is connected to
  bool listens_ = false;
  std::uint64_t image_connection_ = 0;  // at the candidate: of the newest source
  bool source_lost_ = false;            // nobody will connect any more
  bool arrived_ = false;                // ImagesArrived was said
  std::string arrived_error_;
  std::map<RankId, Image> images_;
};

}  // namespace xmpi::sim
