#include "proxy/proxy.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <format>
#include <utility>

#include "base/fault_points.h"
#include "base/limits.h"
#include "base/log.h"
#include "os/net.h"
#include "proxy/environment.h"
#include "proxy/prepare.h"

namespace xmpi::proxy {
namespace {

using std::chrono::steady_clock;

// The interface that `wanted`, a name or an address of one, means; empty for any.
Result<std::string> DeviceOf(const std::string& wanted) {
  if (wanted.empty()) return "";
  XMPI_ASSIGN_OR_RETURN(const auto interfaces, os::InterfaceAddresses());
  for (const os::InterfaceAddress& each : interfaces) {
    if (each.interface == wanted || each.address == wanted) return each.interface;
  }
  return wanted;
}

bool IsLoopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

}  // namespace

Result<Host> InspectHost(const wire::Bootstrap& bootstrap) {
  Host host;
  utsname name{};
  if (uname(&name) != 0) return std::unexpected(ErrnoError("uname"));
  XMPI_ASSIGN_OR_RETURN(host.addresses, os::ReachableAddresses(bootstrap.interface));
  XMPI_ASSIGN_OR_RETURN(host.ports, os::ParsePortRange(bootstrap.port_range));
  XMPI_ASSIGN_OR_RETURN(const std::string device, DeviceOf(bootstrap.interface));
  host.facts = {.node = bootstrap.node,
                .hostname = name.nodename,
                .environment = NodeEnvironment(device, bootstrap.port_range)};
  return host;
}

Proxy::Proxy(asio::io_context& loop, wire::Bootstrap bootstrap, os::Secret secret, Host host,
             std::unique_ptr<os::Slot> slot, Topology topology)
    : loop_(loop),
      bootstrap_(std::move(bootstrap)),
      secret_(std::move(secret)),
      host_(std::move(host)),
      slot_(std::move(slot)),
      topology_(std::move(topology)),
      signals_(loop, SIGTERM, SIGINT, SIGHUP),
      timer_(loop),
      agent_(bootstrap_.proxy, host_.facts.hostname, host_.facts.environment,
             {{"PMI_hwloc_xmlfile", slot_->kept_path()}}),
      output_(loop, {.room = [this] { return link_->StdioRoom(); },
                     .send = [this](RankId rank, std::uint32_t stream,
                                    std::string_view data) { SendOutput(rank, stream, data); }}),
      input_(loop,
             [this](std::uint64_t bytes) {
               wire::Envelope envelope = NewEnvelope();
               envelope.mutable_input_taken()->set_bytes(bytes);
               Send(envelope);
             }),
      ranks_(loop, &output_, &input_, [this](core::AgentEvent event) {
        if (std::holds_alternative<core::RankPmi>(event)) topology_.Fill();
        Deliver(std::move(event));
      }) {}

Proxy::~Proxy() { CloseSlot(); }

Result<> Proxy::Start() {
  WatchSlot();
  WatchSignals();
  XMPI_ASSIGN_OR_RETURN(
      link_, os::LinkClient::Start(
                 loop_, secret_,
                 {.job = bootstrap_.job,
                  .proxy = bootstrap_.proxy,
                  .addresses = bootstrap_.addresses,
                  .port = bootstrap_.port,
                  .timeouts = bootstrap_.timeouts},
                 {.on_message = [this](wire::Envelope message) { OnMessage(std::move(message)); },
                  .on_up =
                      [this](std::string local) {
                        local_address_ = std::move(local);
                        SayHello();
                      },
                  .on_down = [](std::string why) { log::Info("link.down", {{"why", why}}); },
                  .on_lost = [this](Error reason) { OnLost(reason); },
                  .on_stdio_room = [this] { output_.OnRoom(); }}));
  SetFaultCut([this] { link_->Cut(); });
  return {};
}

void Proxy::WatchSlot() {
  slot_->set_on_exit([this](os::SlotExit exit) { ranks_.OnExit(exit); });
  slot_->set_on_lost([this](Error error) {
    if (leaving_) return;
    SendProblem(std::format("the slot on {} has ended: {}", bootstrap_.node, error.message));
    Leave("the slot has ended");
  });
  slot_watch_ = std::make_unique<asio::posix::stream_descriptor>(
      loop_, fcntl(slot_->fd(), F_DUPFD_CLOEXEC, 3));
  const auto wait = [this](const auto& self) -> void {
    slot_watch_->async_wait(asio::posix::stream_descriptor::wait_read,
                            [this, self](const asio::error_code& error) {
                              if (error || !slot_) return;
                              slot_->Dispatch();
                              if (slot_watch_) self(self);
                            });
  };
  wait(wait);
}

void Proxy::WatchSignals() {
  signals_.async_wait([this](const asio::error_code& error, int signal) {
    if (error) return;
    OnSignal(signal);
    WatchSignals();
  });
}

// Somebody on this node wants us gone. The launcher hears of it, and of each rank's end.
void Proxy::OnSignal(int signal) {
  log::Warn("proxy.signal", {{"signal", signal}});
  if (std::exchange(signalled_, true)) return Leave("signalled twice");
  SendProblem(std::format("xmpi-proxy on {} got signal {} ({}) and ends its ranks", bootstrap_.node,
                          signal, strsignal(signal)));
  ranks_.End(false);
  timer_.expires_after(limits::kSignalledLeave);
  timer_.async_wait([this](const asio::error_code& error) {
    if (!error) Leave("signalled");
  });
  if (ranks_.Living().empty()) Leave("signalled");
}

void Proxy::SayHello() {
  if (std::exchange(said_hello_, true)) return;
  wire::Envelope envelope = NewEnvelope();
  wire::ProxyHello& hello = *envelope.mutable_proxy_hello();
  hello.set_hostname(host_.facts.hostname);
  for (const std::string& lost : slot_->lost()) hello.add_lost(lost);
  Send(envelope);
}

void Proxy::OnMessage(wire::Envelope envelope) {
  if (envelope.body_case() == wire::Envelope::kInput)
    return input_.Feed(envelope.input().data(), envelope.input().end());
  HitPhase(envelope);
  // A restored seat hears of a fence only once its ranks have joined one: the commit point.
  if (envelope.body_case() == wire::Envelope::kFenceOut) Commit();
  Deliver(core::LauncherSaid{std::move(envelope)});
}

// The launcher takes us for dead soon, or is dead itself: nothing of the job may outlive this.
void Proxy::OnLost(const Error& reason) {
  log::Error("link.lost", {{"node", bootstrap_.node}, {"why", reason.message}});
  Exit(leaving_ ? 0 : 1);
}

void Proxy::Deliver(core::AgentEvent event) {
  events_.push_back(std::move(event));
  if (delivering_) return;
  delivering_ = true;
  while (!events_.empty()) {
    const core::AgentEvent next = std::move(events_.front());
    events_.pop_front();
    core::AgentActions actions = agent_.On(next);
    for (core::AgentAction& action : actions)
      std::visit([this](auto& what) { Perform(what); }, action);
  }
  delivering_ = false;
}

void Proxy::Perform(core::ToLauncher& action) {
  Send(action.envelope);
  if (action.envelope.body_case() == wire::Envelope::kRunning) Commit();
  HitPhase(action.envelope);
}

void Proxy::Perform(core::ToRank& action) {
  ranks_.Tell(action.rank, action.message);
  // From here on this proxy's copy of the rank is the rank, and no other takes its input.
  if (action.message.fields.kind == rank_link::Kind::kContinue) input_.Resume();
}

void Proxy::Perform(core::SignalRank& action) {
  ranks_.Signal(action.rank, static_cast<pid_t>(action.thread), static_cast<int>(action.signal));
}

void Proxy::Perform(core::ToPmi& action) { ranks_.WritePmi(action.rank, std::move(action.bytes)); }
void Proxy::Perform(core::ClosePmi& action) { ranks_.ClosePmi(action.rank); }
void Proxy::Perform(core::AgentLog& action) { log::Debug("agent", {{"text", action.text}}); }

void Proxy::Perform(core::StartRanks& action) {
  launch_ = action.launch;
  StartRanks(launch_, host_.facts, slot_.get(), &ranks_,
             [this](Result<std::vector<wire::RankPlace>> places) {
               core::RanksStarted started;
               if (places) {
                 started.places = std::move(*places);
               } else {
                 started.error = places.error().message;
               }
               Deliver(std::move(started));
             });
}

void Proxy::Perform(core::EndRanks& action) {
  WithdrawDump();
  ranks_.End(action.at_once);
}

void Proxy::Perform(core::Leave& action) { Leave(action.reason); }

// With the slot ends whatever its ranks have left behind, so the pipes come to their ends too.
void Proxy::Leave(std::string reason) {
  if (std::exchange(leaving_, true)) return;
  leaving_reason_ = std::move(reason);
  // Not now: this may be inside a callback of what is closed.
  asio::post(loop_, [this] {
    CloseSlot();
    output_.DrainAll([] {});
    LeaveWhenDelivered(steady_clock::now() + limits::kOutputDelivery);
  });
}

void Proxy::LeaveWhenDelivered(steady_clock::time_point deadline) {
  const bool late = steady_clock::now() >= deadline;
  if (late) output_.Close();
  const bool read = output_.empty();
  const bool taken = link_->StdioRoom() >= static_cast<std::int64_t>(limits::kStdioWindowBytes);
  if (late || (read && taken)) return SayGoodbye();
  timer_.expires_after(limits::kOutputDeliveryPoll);
  timer_.async_wait([this, deadline](const asio::error_code& error) {
    if (!error) LeaveWhenDelivered(deadline);
  });
}

void Proxy::SayGoodbye() {
  wire::Envelope envelope = NewEnvelope();
  envelope.mutable_leaving()->set_reason(leaving_reason_);
  Send(envelope);
  link_->Close(leaving_reason_, [this] { Exit(0); });
  timer_.expires_after(limits::kGoodbye);
  timer_.async_wait([this](const asio::error_code& error) {
    if (!error) Exit(0);
  });
}

void Proxy::Exit(int code) {
  exit_code_ = code;
  CloseSlot();
  loop_.stop();
}

void Proxy::CloseSlot() {
  pid_freer_.reset();
  sender_.reset();
  receiver_.reset();
  checkpointer_.reset();
  slot_watch_.reset();
  slot_.reset();
}

wire::Envelope Proxy::NewEnvelope() const {
  wire::Envelope envelope;
  wire::Header& header = *envelope.mutable_header();
  header.set_slot(bootstrap_.proxy.slot);
  header.set_epoch(agent_.epoch());
  header.set_migration(agent_.migration());
  header.set_attempt(bootstrap_.proxy.attempt);
  return envelope;
}

void Proxy::Send(const wire::Envelope& envelope) {
  if (Result<> sent = link_->Send(envelope); !sent)
    log::Write(leaving_ ? log::Level::kInfo : log::Level::kError, "link.send",
               {{"why", sent.error().message}});
}

void Proxy::SendOutput(RankId rank, std::uint32_t stream, std::string_view data) {
  wire::Envelope envelope = NewEnvelope();
  wire::Output& output = *envelope.mutable_output();
  output.set_rank(rank);
  output.set_stream(stream);
  output.set_data(data.data(), data.size());
  if (Result<> sent = link_->SendStdio(envelope); !sent)
    log::Write(leaving_ ? log::Level::kInfo : log::Level::kError, "link.send",
               {{"why", sent.error().message}});
}

void Proxy::SendProblem(std::string text) {
  wire::Envelope envelope = NewEnvelope();
  envelope.mutable_problem()->set_text(std::move(text));
  Send(envelope);
}

std::string Proxy::ImageAddress() const {
  const bool chosen = !bootstrap_.interface.empty();
  const bool usable = !local_address_.empty() && !IsLoopback(local_address_);
  if (!chosen && usable) return local_address_;
  return host_.addresses.empty() ? local_address_ : host_.addresses.front();
}

}  // namespace xmpi::proxy
