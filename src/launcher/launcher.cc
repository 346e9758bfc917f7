#include "launcher/launcher.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <format>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/fault_points.h"
#include "base/limits.h"
#include "base/log.h"
#include "launcher/plan.h"
#include "launcher/status.h"

namespace xmpi::launcher {
namespace {

using std::chrono::steady_clock;

// The records at which a phase begins or ends, for fault points.
constexpr std::pair<std::string_view, FaultPoint> kPhaseRecords[] = {
    {"prepare.begin", FaultPoint::kPrepareBefore},
    {"quiesce.begin", FaultPoint::kPrepareAfter},
    {"quiesce.begin", FaultPoint::kQuiesceBefore},
    {"dump.begin", FaultPoint::kQuiesceAfter},
    {"dump.begin", FaultPoint::kDumpBefore},
    {"transfer.begin", FaultPoint::kDumpAfter},
    {"transfer.begin", FaultPoint::kTransferBefore},
    {"restore.begin", FaultPoint::kTransferAfter},
    {"restore.begin", FaultPoint::kRestoreBefore},
    {"handover.done", FaultPoint::kHandoverBefore},
    {"reconnect.begin", FaultPoint::kHandoverAfter},
    {"reconnect.begin", FaultPoint::kReconnectBefore},
    {"reconnect.commit", FaultPoint::kReconnectAfter},
};

SlotId SlotWithInput(const core::JobPlan& plan) {
  for (SlotId slot = 0; slot < plan.slots.size(); ++slot) {
    for (const wire::RankSpec& rank : plan.slots[slot].ranks) {
      if (rank.takes_stdin()) return slot;
    }
  }
  return 0;
}

double Seconds(steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Launcher::Launcher(const Options& options, core::JobPlan plan, steady_clock::time_point began)
    : options_(options),
      coordinator_(std::move(plan)),
      began_(began),
      signals_(loop_, SIGINT, SIGTERM, SIGTSTP),
      patience_(loop_),
      job_timeout_(loop_),
      input_slot_(SlotWithInput(coordinator_.plan())) {}

Launcher::~Launcher() = default;

Result<> Launcher::Open() {
  const std::string& job = coordinator_.plan().job;
  auto listener = os::ControlListener::Listen(job);
  if (!listener) return std::unexpected(WithContext("control socket", listener.error()));
  control_.emplace(loop_, std::move(*listener),
                   ControlServerEvents{
                       .status = [this] { return Status(); },
                       .order = [this](core::Event order) { Feed(std::move(order)); },
                   });
  XMPI_ASSIGN_OR_RETURN(os::Secret secret, os::Secret::Random());
  XMPI_ASSIGN_OR_RETURN(const os::PortRange ports, os::ParsePortRange(options_.port_range));
  const std::string shortage = PortShortage(coordinator_.plan(), ports);
  XMPI_ASSIGN_OR_RETURN(
      links_,
      os::LinkServer::Listen(
          loop_, secret,
          {.job = job,
           .interface = options_.interface,
           .ports = ports,
           .timeouts = options_.link_timeouts},
          {.on_message = [this](ProxyId from,
                                wire::Envelope message) { OnMessage(from, std::move(message)); },
           .on_up = [this](ProxyId proxy, std::string) { proxies_->OnUp(proxy); },
           .on_down =
               [this](ProxyId proxy, std::string reason) {
                 log::Info("link.down", {{"proxy", ToString(proxy)}, {"reason", reason}});
                 proxies_->OnDown(proxy);
               },
           .on_lost =
               [this](ProxyId proxy, Error reason) {
                 Feed(core::ProxyLost{proxy, std::move(reason.message)});
               },
           .on_stdio_room = [](ProxyId) {}}));
  proxies_.emplace(loop_, options_, job, *links_, std::move(secret),
                   ProxiesEvents{.on_lost =
                                     [this](ProxyId proxy, std::string reason) {
                                       Feed(core::ProxyLost{proxy, std::move(reason)});
                                     },
                                 .say = [this](std::string line) { Say(line); }});
  stdio_.emplace(loop_, STDOUT_FILENO, STDERR_FILENO, options_.label,
                 StdioEvents{.acknowledge =
                                 [this](ProxyId proxy, std::size_t messages) {
                                   links_->StdioDone(proxy, messages);
                                 },
                             .drained = [this](ProxyId proxy) { Feed(core::OutputDrained{proxy}); },
                             .broken = [this](int error) { OnBrokenOutput(error); }});
  input_.emplace(loop_, STDIN_FILENO,
                 [this](std::string data, bool end) { SendInput(std::move(data), end); });
  const auto now = std::chrono::system_clock::now();
  auto log = options_.event_log.empty() ? EventLog::OpenIn(EventLog::DefaultFolder(), job, now)
                                        : EventLog::OpenFile(options_.event_log);
  if (log) {
    log_.emplace(std::move(*log));
  } else {
    Say(log.error().message + "; the job runs without a log");
  }
  if (!shortage.empty()) Say(shortage);
  return {};
}

int Launcher::Run() {
  // nohup has it ignored, and means it.
  struct sigaction hangup{};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) signals_.add(SIGHUP);
  // Writing to a terminal from its background must not stop us: silence would end the job.
  for (const int ignored : {SIGPIPE, SIGTTOU, SIGTTIN}) std::signal(ignored, SIG_IGN);
  AwaitSignal();
  StartJobTimeout();
  Feed(core::StartJob{});
  loop_.run();
  const int code = exit_code_.value_or(1);
  return code == 0 && output_lost_ ? 1 : code;
}

nlohmann::ordered_json Launcher::Status() const {
  nlohmann::ordered_json status = StatusJson(coordinator_);
  status["launcher_pid"] = getpid();
  status["event_log"] = log_ ? log_->path() : "";
  return status;
}

void Launcher::Feed(core::Event event) {
  events_.push_back(std::move(event));
  if (feeding_) return;
  feeding_ = true;
  while (!events_.empty()) {
    const core::Event next = std::move(events_.front());
    events_.pop_front();
    Perform(coordinator_.On(next, NowUs()));
  }
  feeding_ = false;
  if (coordinator_.stage() == core::JobStage::kRunning && !running_) {
    running_ = steady_clock::now();
    input_->Start();
  }
  if (coordinator_.stage() >= core::JobStage::kEnding && !ending_) OnEnding();
}

// Whoever is still on the way to us is not waited for: it finds nobody and ends by itself.
void Launcher::OnEnding() {
  ending_ = steady_clock::now();
  if (impatient_) stdio_->Hurry();
  // Proxies that come too late are refused from now on: no news to the user, unless asked for.
  if (std::getenv("XMPI_LOG") == nullptr) log::SetLevel(log::Level::kError);
  for (const ProxyId& proxy : proxies_->NotYetUp())
    Feed(core::ProxyLost{proxy, "the job ended before it had connected"});
}

void Launcher::Perform(core::Actions actions) {
  for (core::Action& action : actions)
    std::visit([this](auto& what) { Do(std::move(what)); }, action);
}

void Launcher::Do(core::StartProxy action) { proxies_->Start(action.proxy, action.node); }

void Launcher::Do(core::SendMessage action) {
  auto sent = links_->Send(action.to, action.envelope);
  // A proxy that takes nothing any more is as good as lost; a forgotten one is no news.
  if (!sent && coordinator_.proxies().contains(action.to))
    Feed(core::ProxyLost{action.to, sent.error().message});
}

void Launcher::Do(core::StopProxy action) { proxies_->Stop(action.proxy); }

void Launcher::Do(core::StartTimer action) {
  auto [timer, added] = timers_.try_emplace(action.timer, loop_);
  timer->second.expires_after(action.after);
  timer->second.async_wait([this, id = action.timer](std::error_code error) {
    if (error) return;
    timers_.erase(id);
    Feed(core::TimerExpired{id});
  });
}

void Launcher::Do(core::DrainOutput action) { stdio_->SetDraining(action.proxy, true); }

void Launcher::Do(core::FeedInput action) {
  // The slot stands still while its input is held; after that the usual window is in force again.
  if (!action.hold) stdio_->SetDraining(coordinator_.slots()[action.slot].proxy, false);
  if (action.slot == input_slot_) input_->Hold(action.hold);
}

// A record tells where the coordinator is; what follows it has not been done yet.
void Launcher::Do(core::Record action) {
  for (const auto& [record, point] : kPhaseRecords) {
    if (action.name == record) (void)HitFaultPoint(point);
  }
  Log(action);
}

void Launcher::Do(core::Accepted action) { control_->OnAccepted(action); }

void Launcher::Do(core::Answer action) { control_->OnAnswer(action); }

void Launcher::Do(core::Tell action) { Say(action.text); }

// All proxies are gone: what is left is to hand out the output and to see the remote shells end.
void Launcher::Do(core::EndJob action) {
  exit_code_ = action.exit_code;
  timers_.clear();
  job_timeout_.cancel();
  if (impatient_) {
    patience_.expires_after(limits::kReaderPatience);
    patience_.async_wait([this](std::error_code error) {
      if (!error) Quit(*exit_code_);
    });
  }
  PrintTiming();
  stdio_->Finish([this] { CloseUp(); });
}

void Launcher::CloseUp() {
  proxies_->WhenAllEnded([this] { Quit(*exit_code_); });
}

void Launcher::Quit(int exit_code) {
  exit_code_ = exit_code;
  loop_.stop();
}

void Launcher::OnMessage(ProxyId from, wire::Envelope message) {
  const auto found = coordinator_.proxies().find(from);
  const bool seat =
      found != coordinator_.proxies().end() && found->second.role == core::ProxyRole::kSeat;
  switch (message.body_case()) {
    case wire::Envelope::kOutput:
      // Streams of a released original end with it; the copy's go on.
      if (!seat) return links_->StdioDone(from);
      return stdio_->OnOutput(from, std::move(*message.mutable_output()));
    case wire::Envelope::kDrained:
      return stdio_->OnDrained(from, message.drained().bytes());
    case wire::Envelope::kInputTaken:
      if (from.slot == input_slot_) input_->OnTaken(message.input_taken().bytes());
      return;
    default:
      return Feed(core::ProxyMessage{from, std::move(message)});
  }
}

void Launcher::SendInput(std::string data, bool end) {
  const core::SlotState& slot = coordinator_.slots()[input_slot_];
  wire::Envelope envelope;
  wire::Header& header = *envelope.mutable_header();
  header.set_slot(input_slot_);
  header.set_epoch(slot.epoch);
  header.set_attempt(slot.proxy.attempt);
  envelope.mutable_input()->set_data(std::move(data));
  envelope.mutable_input()->set_end(end);
  // A control message, so that it reaches a source before the Dump that may follow it.
  if (auto sent = links_->Send(slot.proxy, envelope); !sent)
    log::Info("input.dropped", {{"reason", sent.error().message}});
}

void Launcher::AwaitSignal() {
  signals_.async_wait([this](std::error_code error, int signal) {
    if (error) return;
    OnSignal(signal);
    AwaitSignal();
  });
}

void Launcher::OnSignal(int signal) {
  if (signal == SIGTSTP) return Say("a job over several hosts cannot be stopped; Ctrl-C ends it");
  const auto now = steady_clock::now();
  const bool again = impatient_ && now - last_signal_ < limits::kSecondSignal;
  impatient_ = true;
  last_signal_ = now;
  if (again) return Quit(128 + signal);
  Feed(core::EndOrder{128 + signal,
                      std::format("ended by signal {} ({})", signal, sigdescr_np(signal))});
}

void Launcher::OnBrokenOutput(int error) {
  // As SIGPIPE ends a program whose reader has gone: without a word.
  if (error == EPIPE) return Feed(core::EndOrder{128 + SIGPIPE, ""});
  const std::string why = std::format("standard output cannot be written: {}", strerror(error));
  if (coordinator_.stage() < core::JobStage::kEnding) return Feed(core::EndOrder{1, why});
  // The ranks are through, but what they said is lost.
  output_lost_ = true;
  Say(why);
}

void Launcher::StartJobTimeout() {
  if (!options_.timeout) return;
  job_timeout_.expires_after(*options_.timeout);
  job_timeout_.async_wait([this](std::error_code error) {
    if (error) return;
    impatient_ = true;
    Feed(core::EndOrder{kTimeoutExitCode, std::format("the job has run for {} s, its -timeout",
                                                      options_.timeout->count())});
  });
}

void Launcher::Log(const core::Record& record) {
  if (options_.verbose) stdio_->Say("xmpiexec: " + RecordText(record));
  control_->OnRecord(record);
  if (!log_) return;
  if (auto written = log_->Write(record, std::chrono::system_clock::now(), NowUs()); !written) {
    Say(written.error().message);
    log_.reset();
  }
}

void Launcher::Say(const std::string& text) { stdio_->Say("xmpiexec: " + text); }

std::int64_t Launcher::NowUs() const {
  return std::chrono::duration_cast<std::chrono::microseconds>(steady_clock::now() - began_)
      .count();
}

void Launcher::PrintTiming() {
  if (!options_.print_timing) return;
  const auto now = steady_clock::now();
  const auto ending = ending_.value_or(now);
  const auto running = running_.value_or(ending);
  Say(std::format("start {:.3f} s, run {:.3f} s, end {:.3f} s", Seconds(running - began_),
                  Seconds(ending - running), Seconds(now - ending)));
}

}  // namespace xmpi::launcher
