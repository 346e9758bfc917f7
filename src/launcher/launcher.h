// The shell around core::Coordinator: waits, feeds it events with the time, performs its actions in
// order. It owns the loop's objects: links, remote shells, timers, stdio, the control socket and
// the event log; every decision about the job is the coordinator's.
#pragma once

#include <asio.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "core/coordinator.h"
#include "launcher/control_server.h"
#include "launcher/event_log.h"
#include "launcher/input_feed.h"
#include "launcher/options.h"
#include "launcher/proxies.h"
#include "launcher/stdio.h"
#include "os/link_server.h"

namespace xmpi::launcher {

class Launcher {
 public:
  // `began` is when the program was started, for -print-timing.
  Launcher(const Options& options, core::JobPlan plan, std::chrono::steady_clock::time_point began);
  ~Launcher();

  // Listens and opens what the job needs; nothing has been started when it fails.
  Result<> Open();
  // Runs the job to its end. Returns our exit code.
  int Run();

 private:
  static constexpr int kTimeoutExitCode = 124;

  // Events in (one at a time), actions out.
  void Feed(core::Event event);
  void Perform(core::Actions actions);
  void Do(core::StartProxy action);
  void Do(core::SendMessage action);
  void Do(core::StopProxy action);
  void Do(core::StartTimer action);
  void Do(core::DrainOutput action);
  void Do(core::FeedInput action);
  void Do(core::Record action);
  void Do(core::Accepted action);
  void Do(core::Answer action);
  void Do(core::Tell action);
  void Do(core::EndJob action);

  // What comes from the links.
  void OnMessage(ProxyId from, wire::Envelope message);
  void SendInput(std::string data, bool end);

  // What comes from our surroundings.
  void AwaitSignal();
  void OnSignal(int signal);
  void OnBrokenOutput(int error);
  void StartJobTimeout();
  void Log(const core::Record& record);
  void Say(const std::string& text);
  void OnEnding();
  void CloseUp();
  void Quit(int exit_code);
  nlohmann::ordered_json Status() const;
  std::int64_t NowUs() const;
  void PrintTiming();

  const Options& options_;
  asio::io_context loop_{1};
  core::Coordinator coordinator_;
  const std::chrono::steady_clock::time_point began_;

  std::unique_ptr<os::LinkServer> links_;
  std::optional<Proxies> proxies_;
  std::optional<Stdio> stdio_;
  std::optional<InputFeed> input_;
  std::optional<EventLog> log_;
  std::optional<ControlServer> control_;
  asio::signal_set signals_;
  asio::steady_timer patience_;
  asio::steady_timer job_timeout_;
  std::map<core::TimerId, asio::steady_timer> timers_;

  SlotId input_slot_ = 0;
  std::deque<core::Event> events_;
  bool feeding_ = false;
  bool impatient_ = false;  // at the end unread output is not waited for
  std::chrono::steady_clock::time_point last_signal_{};
  std::optional<int> exit_code_;
  bool output_lost_ = false;  // after the ranks had ended
  std::optional<std::chrono::steady_clock::time_point> running_, ending_;
};

}  // namespace xmpi::launcher
