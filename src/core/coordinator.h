// The launcher's machine: the job's life and its migrations. Event in, list of actions out; no
// socket, clock, thread, random number or global. It owns all job state; the shell owns nothing but
// connections and processes. Paper section 4.3 is the ancestor; departures: docs/architecture.md.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "core/action.h"
#include "core/event.h"
#include "core/job_plan.h"
#include "core/migration.h"
#include "pmi/hub.h"

namespace xmpi::core {

enum class ProxyRole {
  kSeat,       // holds its slot
  kCandidate,  // on a target, before handover
  kGiver,      // a candidate that failed, but holds the only images there are
  kFormer,     // released or discarded; only its leaving is awaited
};

struct ProxyState {
  ProxyRole role = ProxyRole::kSeat;
  std::string node{};
  bool connected = false;
};

struct SlotState {
  std::string node{};
  ProxyId proxy{};  // who holds the seat
  Epoch epoch = 1;
  bool launched = false;
};

struct RankState {
  SlotId slot = 0;
  std::uint32_t pid = 0;
  std::uint32_t namespace_pid = 0;
  bool hello = false;
  std::string warning{};  // that came with it
  std::string sockets{};  // as its libxmpi lists them (wire/rank_link.h)
  bool finalizing = false;
  bool exited = false;
  std::uint32_t wait_status = 0;
};

enum class JobStage { kStarting, kRunning, kEnding, kEnded };

class Coordinator {
 public:
  explicit Coordinator(JobPlan plan);

  // Performs one step at launcher time `now_us` (any monotonic clock, microseconds).
  Actions On(const Event& event, std::int64_t now_us);

  const JobPlan& plan() const { return plan_; }
  JobStage stage() const { return stage_; }
  const std::vector<SlotState>& slots() const { return slots_; }
  const std::vector<RankState>& ranks() const { return ranks_; }
  const std::map<ProxyId, ProxyState>& proxies() const { return proxies_; }
  const std::optional<Migration>& migration() const { return migration_; }
  MigrationId migrations() const { return last_migration_; }
  std::uint64_t stale_messages() const { return stale_messages_; }
  // Everything it remembers, counted: at rest this does not grow with the number of moves.
  std::size_t StateSize() const;

 private:
  // Events (coordinator.cc).
  void OnEvent(const StartJob&);
  void OnEvent(const ProxyMessage& message);
  void OnEvent(const ProxyLost& lost);
  void OnEvent(const OutputDrained& drained);
  void OnEvent(const TimerExpired& expired);
  void OnEvent(const EvacuateOrder& order);
  void OnEvent(const CancelOrder& order);
  void OnEvent(const EndOrder& order);

  // Messages, by who sends them (messages.cc).
  struct SeatMessage;
  static const SeatMessage* FindSeatMessage(wire::Envelope::BodyCase body);
  void OnSeatMessage(const ProxyMessage& message);
  void OnSeatSourceReady(SlotId slot, const ProxyMessage& message);
  void OnSeatProgress(SlotId slot, const ProxyMessage& message);
  void OnSeatDumped(SlotId slot, const ProxyMessage& message);
  void OnProblem(const std::string& place, const ProxyMessage& message);
  void OnCandidateMessage(const ProxyMessage& message);
  void OnCopyExited(Move& move, RankId rank);
  void OnGiverMessage(const ProxyMessage& message);
  void OnFormerMessage(const ProxyMessage& message);
  void Stale(const ProxyMessage& message, std::string_view why);

  // The job's life (job_life.cc).
  void OnHello(const ProxyId& from, const wire::ProxyHello& hello);
  void OnLaunched(SlotId slot, const wire::Launched& launched);
  void AddSockets(SlotId slot, wire::PrepareSource* source) const;
  void OnRankHello(const wire::RankHello& hello);
  void OnRankSockets(const wire::RankSockets& sockets);
  void TellWarnings();
  void OnRankFinalizing(RankId rank);
  void OnRankExited(const wire::RankExited& exited);
  std::string WhyExitFails(const wire::RankExited& exited) const;
  void OnRankEndedWell(RankId rank);
  void OnRankAborted(const wire::RankAborted& aborted);
  void OnFenceIn(SlotId slot, const wire::FenceIn& fence);
  void OnNameRequest(SlotId slot, const wire::NameRequest& request);
  void OnSeatLost(SlotId slot, const std::string& reason);
  bool LivesOn(SlotId slot, const std::string& reason);
  void BeginEnd(int exit_code, std::string reason);
  void Forget(const ProxyId& proxy);  // its link and process are gone or to be ended
  wire::Launch LaunchOf(SlotId slot) const;
  void EndIfAllGone();

  // prepare (prepare.cc)
  std::string WhyNotMovable() const;
  Result<std::vector<Move>> PlaceNode(const EvacuateOrder& order);
  Result<> PlaceMove(Move& move, std::span<const Move> others) const;
  void StartCandidate(const Move& move);
  void PrepareTargetOf(const Move& move);
  void OnTargetReady(Move& move, const wire::TargetReady& ready);
  void OnSourceReady(Move& move, const wire::SourceReady& ready);
  void OnPlan(Move& move, const wire::Plan& plan);
  void OnProgress(Move& move, const wire::Progress& progress);
  std::optional<std::int64_t> MillisecondsLeft() const;

  // What operators want (orders.cc)
  void StartMigration(const EvacuateOrder& order);
  void StartNextMigration();
  bool JoinsNow(const EvacuateOrder& order) const;
  void Join(const EvacuateOrder& order);
  void LeaveTarget(const EvacuateOrder& order);
  void Refuse(const EvacuateOrder& order, std::string reason);
  void AnswerOrder(RequestId request, MigrationResult result);
  void Accept(const EvacuateOrder& order);

  // What fails (failure.cc)
  void TryElsewhere(Move& move, std::string reason);
  bool RetireCandidate(Move& move);
  void PushOn(Move& move);
  bool Reinstate(Move& move);
  void OnCandidateFailed(Move& move, std::string reason);
  bool SurvivesInImages(const Move& move) const;
  void Rescue(Move& move, const std::string& reason);
  void PushRescue(Move& move);
  void AskWhatIsHeld(const Move& move);
  void ReleaseHolders(const Move& move);
  void OnGiverLost(Move& move, const std::string& reason);
  void OnOriginalsLost(Move& move, const std::string& reason);
  void LeaveGroup(Move& move, std::string reason);
  void FailMigration(std::string reason);
  void OnLate();
  void AbandonMoves();
  void Abandon(const Move& move);
  void LetInputFlow();
  void DiscardCandidate(const Move& move);
  void DiscardProxy(const ProxyId& proxy);
  Move* FindMove(ProxyId Move::* who, const ProxyId& proxy);
  Move* MoveFrom(const ProxyId& source);
  Move* UncommittedMoveOf(SlotId slot);
  Move* MoveOf(SlotId slot);

  // quiesce (quiesce.cc)
  void EnterNotice();
  void OnNoticed(SlotId slot, const wire::Noticed& noticed);
  void AgreeOnStopCall();
  void OnArrived(const wire::Arrived& arrived);
  void OnChecked(const wire::Checked& checked);
  void OnParked(const wire::Parked& parked);
  void CallOff();  // everybody goes on in place; nothing was torn down

  // dump, transfer, restore (move.cc)
  void EnterDump();
  void SendDump(Move& move);
  void OnDumped(Move& move, const wire::Dumped& dumped);
  void OnImagesHeld(Move& move, const wire::ImagesHeld& held);
  void EnterRestore();
  void RestoreTheReady();
  void SendRestore(Move& move);
  void OnRestored(Move& move, const wire::Restored& restored);

  // handover (handover.cc): an in-memory swap, and the way back before the commit point
  void HandOver();
  void HandOverOne(Move& move);
  void GiveBack(Move& move, const std::string& reason);
  void TakeSeatBack(Move& move, const std::string& reason);
  void DropFromFence(SlotId slot);
  void OnReconnectLate();

  // reconnect (reconnect.cc)
  wire::Envelope ContinueMessage() const;
  void EnterReconnect();
  void OnRunning(const wire::Running& running);
  void OnFenceOpened(std::uint32_t generation);

  // Walking the table (step.cc)
  void Pull(Trigger trigger);  // takes the transition of the current step
  void Enter(Step step);
  void Begin(Step step);  // sends what the step begins with
  void StartStepTimer();
  void Advance();  // on to the next step, if this one has all it waits for
  bool StepIsDone() const;
  Trigger WhatFollows() const;  // of a step that is done
  void FinishMigration();
  std::string WhoIsMissing() const;
  bool EveryRank(bool RankProgress::* flag) const;
  bool EveryMove(bool Move::* flag) const;  // of those that have not left the group
  bool IsLate(const Move& move) const;

  // Actions
  void Send(SlotId slot, wire::Envelope envelope);
  void SendCandidate(const ProxyId& candidate, wire::Envelope envelope);
  void SendGiver(const Move& move, wire::Envelope envelope);
  void SendFormer(const ProxyId& proxy, wire::Envelope envelope);
  void SendAllSlots(const wire::Envelope& envelope);
  void Log(std::string name, std::vector<std::pair<std::string, Record::Value>> fields);
  std::string Place(SlotId slot) const;  // "slot 1 on node2"
  std::string PlaceOfRank(RankId rank) const;
  std::string RanksOf(SlotId slot) const;
  std::string SlotsNotLaunched() const;
  bool KnownRank(SlotId slot, RankId rank) const;

  JobPlan plan_;
  pmi::Hub hub_;
  JobStage stage_ = JobStage::kStarting;
  std::vector<SlotState> slots_;
  std::vector<RankState> ranks_;
  std::map<ProxyId, ProxyState> proxies_;
  std::optional<Migration> migration_;
  std::deque<EvacuateOrder> waiting_;
  MigrationId last_migration_ = 0;
  Generation generation_ = 0;        // the newest of which a fence has opened
  std::set<std::string> told_lost_;  // what the user has been told that nodes lack
  std::uint64_t stale_messages_ = 0;
  int exit_code_ = 0;
  std::int64_t now_us_ = 0;
  Actions actions_;
};

}  // namespace xmpi::core
