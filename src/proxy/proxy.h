// The shell of xmpi-proxy around core::Agent: it waits for the launcher's messages, the ranks and
// the results of work, delivers each to the Agent as an event, and performs the actions that come
// back. It owns everything of its slot: the namespaces, the ranks, the images, the link. It decides
// nothing but what no machine can: when the link is lost, all of the slot ends at once.
#pragma once

#include <asio.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "core/agent.h"
#include "criu/checkpointer.h"
#include "os/key.h"
#include "os/link_client.h"
#include "os/slot.h"
#include "proxy/dump.h"
#include "proxy/prepare.h"
#include "proxy/ranks.h"
#include "proxy/start.h"
#include "proxy/stdio.h"
#include "proxy/topology.h"
#include "proxy/transfer.h"
#include "wire/bootstrap.h"
#include "wire/control.pb.h"

namespace xmpi::proxy {

// What this host is to a job: from the host itself and the bootstrap line.
struct Host {
  NodeFacts facts;
  std::vector<std::string> addresses;  // where others reach it, best first
  os::PortRange ports;
};
Result<Host> InspectHost(const wire::Bootstrap& bootstrap);

class Proxy {
 public:
  Proxy(asio::io_context& loop, wire::Bootstrap bootstrap, os::Secret secret, Host host,
        std::unique_ptr<os::Slot> slot, Topology topology);
  ~Proxy();

  // Dials the launcher. After this the loop runs until the proxy has left.
  Result<> Start();
  int exit_code() const { return exit_code_; }

 private:
  void WatchSlot();
  void WatchSignals();
  void OnSignal(int signal);
  void SayHello();
  void OnMessage(wire::Envelope envelope);
  void OnLost(const Error& reason);

  // Events to the Agent, in order; an action may cause the next.
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

  // proxy_move.cc
  Here HereWith(Result<criu::Preflight> criu) const;
  Result<> ListenForImages(const criu::Preflight& criu);
  void Commit();
  void OnFilled(Result<> filled);
  void SendProgress(const wire::Progress& progress);
  void OnImages(Result<std::uint64_t> bytes);
  Result<> BeginSource(const core::ConnectSource& action);
  Result<> DialTarget(const core::ConnectSource& action, const criu::Preflight& criu);
  void StartDump(const core::DumpRanks& action);
  Result<> BeginDump(const core::DumpRanks& action);
  std::vector<wire::RankImage> WithInput(std::vector<wire::RankImage> facts) const;
  void WithdrawDump();
  void OnDumped(Result<std::vector<wire::RankImage>> images);
  void OnWithdrawnDumpEnded();
  void SendHeld();
  void DrainOutput();
  void ContinueOriginals();
  void RestoreFrom(std::vector<HeldImage> images, std::chrono::milliseconds timeout);
  void OnRestored(Result<std::vector<wire::RankPlace>> places);
  Result<std::vector<HeldImage>> HeldImages() const;
  Result<std::vector<wire::RankImage>> HeldFacts() const;
  void HitPhase(const wire::Envelope& envelope);
  criu::Checkpointer& checkpointer();
  Post PostFunction();

  // Leaving: the slot ends, its output is delivered, then the launcher is told.
  void Leave(std::string reason);
  void LeaveWhenDelivered(std::chrono::steady_clock::time_point deadline);
  void SayGoodbye();
  void Exit(int code);
  void CloseSlot();

  wire::Envelope NewEnvelope() const;
  void Send(const wire::Envelope& envelope);
  void SendOutput(RankId rank, std::uint32_t stream, std::string_view data);
  void SendProblem(std::string text);
  // Where the image port listens.
  std::string ImageAddress() const;

  asio::io_context& loop_;
  const wire::Bootstrap bootstrap_;
  const os::Secret secret_;
  const Host host_;
  std::unique_ptr<os::Slot> slot_;
  Topology topology_;
  std::unique_ptr<asio::posix::stream_descriptor> slot_watch_;
  asio::signal_set signals_;
  asio::steady_timer timer_;  // of leaving

  core::Agent agent_;
  std::deque<core::AgentEvent> events_;
  bool delivering_ = false;

  std::unique_ptr<os::LinkClient> link_;
  std::string local_address_;  // ours on the link
  bool said_hello_ = false;
  OutputRelay output_;
  InputFeed input_;
  Ranks ranks_;

  std::unique_ptr<criu::Checkpointer> checkpointer_;
  wire::Launch launch_;
  std::uint64_t connecting_ = 0;  // grows with each ConnectSource, and when one is withdrawn
  std::unique_ptr<ImageSender> sender_;
  std::unique_ptr<ImageReceiver> receiver_;
  // Of the move under way; the sender's thread writes it before it says that it is connected.
  std::shared_ptr<FilePolicy> files_;
  // A dump that is withdrawn goes on until CRIU has let go of every rank; the next waits for that.
  bool dumping_ = false;
  bool dump_withdrawn_ = false;
  bool continue_when_dumped_ = false;
  std::optional<core::DumpRanks> next_dump_;
  bool restored_ = false;  // and not committed
  bool filling_ = false;   // restored ranks' memory
  std::optional<core::ConnectSource> connect_when_filled_;
  std::shared_ptr<void> pid_freer_;  // while a restore waits for its PIDs

  bool leaving_ = false;
  bool signalled_ = false;
  std::string leaving_reason_;
  int exit_code_ = 0;
};

}  // namespace xmpi::proxy
