// RankProcess: one instance of a rank, original or copy, with a small model of libxmpi in it: the
// real rank::QuiesceState, the safe point's slow path as src/rank/quiesce.cc walks it, PMI text
// lines as MPICH sends them, and an application that exchanges halos. An image is a copy of its
// RankModel: what is not in there does not travel.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "core/agent_event.h"
#include "rank/quiesce_state.h"
#include "sim/event_queue.h"
#include "sim/node.h"

namespace xmpi::sim {

class Proxy;
class World;

enum class Place {
  kOpening,  // talks PMI: at the start, and after a continue
  kComputing,
  kHalo,       // waits for its neighbours
  kSafePoint,  // in the slow path of XMPI_Quiesce, waits for a word
  kBarrier,    // the check's
  kTearing,
  kParked,
  kFinalizing,
  kEnded,
};
const char* Name(Place place);

struct RankModel {
  RankId rank = 0;
  Place place = Place::kOpening;
  rank::QuiesceState quiesce{};
  std::uint64_t passed = 0;  // XMPI_Quiesce calls entered
  bool in_stop = false;      // between arrival and the end of the stop
  bool said_hello = false;
  bool rebuilt = false;  // the session was opened anew in this call
  bool signal_pending = false;
  Epoch epoch = 1;
  Generation generation = 0;
  std::uint32_t fences = 0;    // entered in this generation
  std::uint32_t barriers = 0;  // of this session
  int pmi_step = 0;
  std::size_t pmi_peer = 0;
  std::string kvs{};
  std::map<RankId, std::string> addresses{};
};

class RankProcess : public std::enable_shared_from_this<RankProcess> {
 public:
  RankProcess(World* world, Proxy* proxy, Node* node, int instance, RankModel model);

  RankId rank() const { return model_.rank; }
  int instance() const { return instance_; }
  const RankModel& model() const { return model_; }
  Node& node() const { return node_; }
  bool alive() const { return model_.place != Place::kEnded; }
  bool stopped() const { return stopped_; }
  bool parked() const { return model_.place == Place::kParked; }
  std::size_t unread() const { return inbox_.size(); }
  Proxy& proxy() const { return proxy_; }

  // A fresh process begins its program; a restored one waits where its model says.
  void Begin();
  void Stop() { stopped_ = true; }
  void Continue();
  // The process is gone, without a word of its own.
  void End();
  // exit(0), whatever it was doing: MPI's own handler says goodbye to PMI.
  void ExitWell();
  void StallUntil(Time time) { stalled_until_ = std::max(stalled_until_, time); }

  void OnControl(const core::RankMessage& message);
  void OnSignal();
  void OnPmi(const std::string& line);
  void OnHalo();
  void OnBarrierEnd();

 private:
  using Step = void (RankProcess::*)();

  void After(Time delay, Step step);
  void Read();

  // The application.
  void Compute();
  void EndOfCompute();
  void TryHalo();
  void Finalize();
  void Exit();

  // libxmpi.
  void EnterSafePoint();
  void Pass();
  void StopHere();
  void Arrive();
  void Torn();
  void LeaveSafePoint();
  void HandleSignal();
  void Drain();
  rank::Reaction Take(const core::RankMessage& message);
  void React(rank::Reaction reaction);
  void Tell(rank_link::Kind kind, const std::string& refusal = "");

  // MPICH.
  void Open();
  void SendPmi(const std::string& line);
  void AskNextPeer();
  void Opened();

  World& world_;
  Proxy& proxy_;
  Node& node_;
  const int instance_;
  RankModel model_;
  bool stopped_ = false;
  bool wake_ = false;  // something came while it was stopped
  Time stalled_until_ = 0;
  std::uint64_t steps_scheduled_ = 0;
  std::deque<core::RankMessage> inbox_;  // the kernel's, so no part of an image
};

}  // namespace xmpi::sim
