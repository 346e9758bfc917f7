#include "proxy/ranks.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <format>
#include <fstream>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "os/namespaces.h"
#include "os/pidfd.h"
#include "wire/rank_link.h"

namespace xmpi::proxy {
namespace {

using image::TieKind;

bool IsStopped(pid_t host_pid) {
  std::ifstream stat(std::format("/proc/{}/stat", host_pid));
  std::string text;
  std::getline(stat, text);
  const std::size_t end = text.rfind(')');
  return end != std::string::npos && text.size() > end + 2 &&
         (text[end + 2] == 'T' || text[end + 2] == 't');
}

}  // namespace

Ranks::Ranks(asio::io_context& loop, OutputRelay* output, InputFeed* input, Deliver deliver)
    : loop_(loop), output_(output), input_(input), deliver_(std::move(deliver)), grace_(loop) {}

Ranks::~Ranks() {
  for (auto& [id, rank] : ranks_) {
    if (rank.control) rank.control->Close();
    if (rank.pmi) rank.pmi->Close();
  }
}

void Ranks::Add(RankId id, os::Spawned process, std::vector<TieEnds> ties) {
  Rank& rank = ranks_[id];
  rank.process = {process.pid, process.host_pid, ForDump(ties)};
  rank.pidfd = std::move(process.pidfd);
  for (TieEnds& tie : ties) {
    switch (tie.kind) {
      case TieKind::kControl:
        rank.control = Duplex::Open(loop_, std::move(tie.ours),
                                    [this, id](std::string_view packet) { OnControl(id, packet); });
        break;
      case TieKind::kPmi:
        rank.pmi = Duplex::Open(loop_, std::move(tie.ours), [this, id](std::string_view bytes) {
          if (!bytes.empty()) deliver_(core::RankPmi{id, std::string(bytes)});
        });
        break;
      case TieKind::kStdin:
        input_->Open(std::move(tie.ours));
        break;
      case TieKind::kStdout:
      case TieKind::kStderr:
        output_->Add(id, tie.kind == TieKind::kStdout ? 1 : 2, std::move(tie.ours));
        break;
    }
  }
}

void Ranks::OnControl(RankId id, std::string_view packet) {
  if (packet.empty()) return;
  const auto message = rank_link::Decode(packet.data(), packet.size());
  if (!message || !rank_link::FromRank(message->kind)) {
    log::Warn("rank.malformed",
              {{"rank", id}, {"why", message ? "not for a rank to say" : message.error()}});
    return;
  }
  core::RankSaid said{.rank = id, .message = {.fields = *message}};
  said.message.name = message->name;
  said.message.text = message->text;
  said.message.fields.name = said.message.fields.text = {};
  deliver_(std::move(said));
}

void Ranks::ReleaseExits() {
  holding_exits_ = false;
  for (const os::SlotExit& exit : std::exchange(held_exits_, {})) OnExit(exit);
}

void Ranks::ForgetExits() {
  holding_exits_ = false;
  held_exits_.clear();
}

void Ranks::ForgetExitsOf(pid_t pid) {
  std::erase_if(held_exits_, [pid](const os::SlotExit& exit) { return exit.pid == pid; });
}

void Ranks::OnExit(os::SlotExit exit) {
  if (holding_exits_) return held_exits_.push_back(exit);
  for (auto& [id, rank] : ranks_) {
    if (rank.process.pid != exit.pid || rank.ended) continue;
    rank.ended = true;
    log::Debug("rank.exit", {{"rank", id}, {"pid", exit.pid}, {"status", exit.status}});
    const RankId number = id;
    const auto status = static_cast<std::uint32_t>(exit.status);
    rank.control->ReadNow();
    rank.pmi->ReadNow();
    rank.control->Close();
    rank.pmi->Close();
    rank.pidfd.Close();
    output_->Drain(number, [this, number, status] { deliver_(core::RankEnded{number, status}); });
    return;
  }
}

void Ranks::Tell(RankId id, const core::RankMessage& message) {
  const auto found = ranks_.find(id);
  if (found == ranks_.end() || found->second.ended) return;
  rank_link::Message fields = message.fields;
  fields.name = message.name;
  fields.text = message.text;
  char packet[rank_link::kMessageLimit];
  const std::size_t size = rank_link::Encode(fields, packet);
  if (size == 0) {
    log::Error("rank.unsayable", {{"rank", id}, {"kind", rank_link::Name(fields.kind)}});
    return;
  }
  found->second.control->Write(std::string(packet, size));
}

void Ranks::WritePmi(RankId id, std::string bytes) {
  const auto found = ranks_.find(id);
  if (found != ranks_.end() && !found->second.ended) found->second.pmi->Write(std::move(bytes));
}

void Ranks::ClosePmi(RankId id) {
  const auto found = ranks_.find(id);
  if (found != ranks_.end()) found->second.pmi->Close();
}

void Ranks::Signal(RankId id, pid_t thread, int signal) {
  const auto found = ranks_.find(id);
  if (found == ranks_.end() || found->second.ended) return;
  const pid_t host_pid = found->second.process.host_pid;
  const Result<pid_t> host_tid = os::HostTid(host_pid, thread);
  if (host_tid) syscall(SYS_tgkill, host_pid, *host_tid, signal);
}

void Ranks::Kill(const Rank& rank, int signal) {
  os::PidfdSendSignal(rank.pidfd.get(), signal);
  // It leads a process group of the same number: what it has forked goes with it.
  if (rank.process.host_pid > 0) kill(-rank.process.host_pid, signal);
}

void Ranks::End(bool at_once) {
  for (const auto& [id, rank] : ranks_) {
    if (rank.ended) continue;
    Kill(rank, at_once || IsStopped(rank.process.host_pid) ? SIGKILL : SIGTERM);
  }
  if (at_once) return;
  grace_.expires_after(limits::kRankGrace);
  grace_.async_wait([this](const asio::error_code& error) {
    if (!error) KillRest();
  });
}

void Ranks::KillRest() {
  for (const auto& [id, rank] : ranks_) {
    if (!rank.ended) Kill(rank, SIGKILL);
  }
}

void Ranks::Forget() {
  grace_.cancel();
  for (const auto& [id, rank] : std::exchange(ranks_, {})) {
    if (!rank.ended) Kill(rank, SIGKILL);
    rank.control->Close();
    rank.pmi->Close();
  }
  output_->Forget();
  input_->Forget();
}

std::map<RankId, Ranks::Process> Ranks::Living() const {
  std::map<RankId, Process> living;
  for (const auto& [id, rank] : ranks_) {
    if (!rank.ended) living[id] = rank.process;
  }
  return living;
}

}  // namespace xmpi::proxy
