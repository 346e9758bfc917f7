// The proxy's machine: one slot's ranks, between the launcher and the ranks. It gathers what the
// ranks say (paper 4.3 steps 4 to 8), serves PMI through pmi::Server, and orders dump, transfer and
// restore of the shell. No IO. A candidate is an Agent that begins without ranks and gets them by
// restore; it speaks only under its attempt until the launcher continues it with an epoch.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "core/agent_action.h"
#include "core/agent_event.h"
#include "pmi/server.h"

namespace xmpi::core {

class Agent {
 public:
  using PmiKeys = decltype(pmi::SlotFacts::keys);
  // `hostname` is what this node's ranks see as PMI_HOSTNAME; `environment` what else they need to
  // know of this node whenever they open a session (network devices, ports).
  // `pmi_keys` are what PMI answers of this node (PMI_hwloc_xmlfile).
  Agent(ProxyId id, std::string hostname, std::vector<wire::EnvironmentVariable> environment,
        PmiKeys pmi_keys = {});

  AgentActions On(const AgentEvent& event);

  Epoch epoch() const { return epoch_; }
  MigrationId migration() const { return migration_; }
  bool ranks_alive() const;
  // Everything it remembers, counted: this does not grow with the number of moves.
  std::size_t StateSize() const;
  std::uint64_t stale_messages() const { return stale_messages_; }

 private:
  struct Rank {
    bool started = false;  // or restored
    bool hello = false;
    bool finalizing = false;
    bool ended = false;
    std::uint32_t wait_status = 0;
    bool noticed = false;  // in the current migration
    std::uint32_t thread = 0;
    std::uint32_t signal = 0;
    std::uint64_t passed = 0;
    Generation generation = 0;
    int appnum = 0;
  };
  enum class Role { kSeat, kCandidate, kReleased };
  enum class Restore { kNone, kUnderWay, kDone };

  void OnEvent(const LauncherSaid& said);
  void OnEvent(const RankSaid& said);
  void OnEvent(const RankPmi& pmi);
  void OnEvent(const RankEnded& ended);
  void OnEvent(const RanksStarted& started);
  void OnEvent(const TargetPrepared& prepared);
  void OnEvent(const SourceConnected& connected);
  void OnEvent(const RanksDumped& dumped);
  void OnEvent(const ImagesArrived& arrived);
  void OnEvent(const RanksRestored& restored);

  // Whether a message is to be acted on; adopts a newer migration or epoch.
  bool Accept(const wire::Envelope& envelope);
  struct LauncherMessage;
  static const LauncherMessage* FindLauncherMessage(wire::Envelope::BodyCase body);
  void OnLaunch(const wire::Launch& launch);
  void OnFenceOut(const wire::FenceOut& fence);
  void OnPrepareTarget(const wire::PrepareTarget& prepare);
  void OnPrepareSource(const wire::PrepareSource& prepare);
  void OnNotice();
  void OnDump(const wire::Dump& dump);
  void OnRestore(const wire::Restore& restore);
  void SayRestored(const std::string& error);
  void OnContinue(const wire::Continue& message);
  void OnDiscard();
  void EndAtOnce(std::string reason);
  void SayEnded(RankId rank);
  void AddFacts(wire::RankImage* image) const;
  void OnTerminate(const wire::Terminate& terminate);
  void OnNameReply(const wire::NameReply& reply);

  void AdoptLaunch(const wire::Launch& launch);
  void OpenPmi(const std::string& mapping);
  void OnHello(const RankSaid& said);
  void OnSockets(const RankSaid& said);
  void OnFinalizing(const RankSaid& said);
  void OnNoticed(const RankSaid& said);
  void PassOn(const RankSaid& said);
  void Perform(pmi::Actions actions);
  void Perform(pmi::Reply reply);
  void Perform(pmi::FenceIn fence);
  void Perform(pmi::Aborted aborted);
  void Perform(pmi::ProtocolError error);
  void Perform(pmi::Finalized);
  void Perform(pmi::Publish publish);
  void Perform(pmi::Unpublish unpublish);
  void Perform(pmi::Lookup lookup);
  void AskForName(const auto& asked, wire::NameRequest::Operation operation,
                  const std::string& port = "");
  void SendNoticedIfAll();
  void TellRanks(rank_link::Kind kind, std::uint64_t stop_call = 0, const std::string& text = "");
  void Tell(RankId rank, rank_link::Kind kind, std::uint64_t stop_call, const std::string& text,
            const std::string& name = "");
  void Send(wire::Envelope envelope);
  void LeaveIfOver();

  ProxyId id_;
  std::string hostname_;
  std::vector<wire::EnvironmentVariable> environment_;
  PmiKeys pmi_keys_;
  Role role_;
  Epoch epoch_ = 0;
  MigrationId migration_ = 0;
  wire::Launch launch_;
  std::map<RankId, Rank> ranks_;
  std::optional<pmi::Server> server_;
  Restore restore_ = Restore::kNone;
  std::vector<wire::RankPlace> restored_places_;
  std::optional<AttemptId> connecting_for_;  // to whose target, ordered and not answered
  std::optional<AttemptId> dumping_for_;     // a dump is ordered and not answered
  bool ending_ = false;
  std::string ending_reason_;
  std::uint64_t stale_messages_ = 0;
  AgentActions actions_;
};

}  // namespace xmpi::core
