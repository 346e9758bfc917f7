// The job's life: proxies come, ranks start, fences pass, ranks end, everybody leaves.
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <format>
#include <map>
#include <string>
#include <vector>

#include "core/coordinator.h"

namespace xmpi::core {
namespace {

constexpr int kCannotStart = 127;  // as a shell says when a program cannot be run

std::string HowItEnded(std::uint32_t wait_status) {
  const int status = static_cast<int>(wait_status);
  if (WIFSIGNALED(status)) {
    const char* name = sigdescr_np(WTERMSIG(status));
    return std::format("was ended by signal {} ({})", WTERMSIG(status), name ? name : "unknown");
  }
  return std::format("exited with code {}", WEXITSTATUS(status));
}

int ExitCodeOf(std::uint32_t wait_status) {
  const int status = static_cast<int>(wait_status);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

void Coordinator::OnEvent(const StartJob&) {
  for (SlotId slot = 0; slot < slots_.size(); ++slot) {
    proxies_[slots_[slot].proxy] = {.role = ProxyRole::kSeat, .node = slots_[slot].node};
    actions_.push_back(StartProxy{slots_[slot].proxy, slots_[slot].node});
  }
  Log("job.start", {{"job", plan_.job},
                    {"ranks", static_cast<std::int64_t>(ranks_.size())},
                    {"slots", static_cast<std::int64_t>(slots_.size())}});
  actions_.push_back(StartTimer{{.kind = TimerId::Kind::kStart}, plan_.timeouts.start});
}

void Coordinator::OnHello(const ProxyId& from, const wire::ProxyHello& hello) {
  ProxyState& proxy = proxies_[from];
  if (proxy.connected) return;  // a replay
  proxy.connected = true;
  Log("proxy.hello", {{"slot", static_cast<std::int64_t>(from.slot)},
                      {"node", proxy.node},
                      {"hostname", hello.hostname()},
                      {"attempt", static_cast<std::int64_t>(from.attempt)}});
  for (const std::string& lost : hello.lost()) {
    Log("node.lacks", {{"node", proxy.node}, {"what", lost}});
    if (told_lost_.insert(lost).second)  // once for all nodes
      actions_.push_back(Tell{std::format("{}: {}", proxy.node, lost)});
  }
  if (proxy.role == ProxyRole::kSeat && stage_ == JobStage::kStarting) {
    wire::Envelope envelope;
    *envelope.mutable_launch() = LaunchOf(from.slot);
    return Send(from.slot, std::move(envelope));
  }
  if (const Move* move = FindMove(&Move::candidate, from)) PrepareTargetOf(*move);
}

wire::Launch Coordinator::LaunchOf(SlotId slot) const {
  wire::Launch launch;
  launch.set_size(static_cast<std::uint32_t>(ranks_.size()));
  launch.set_universe_size(plan_.universe_size);
  launch.set_process_mapping(plan_.process_mapping);
  launch.set_bind_to(plan_.bind_to);
  launch.set_kvs_prefix("kvs_" + plan_.job);
  for (const std::string& name : plan_.inherit_environment) launch.add_inherit_environment(name);
  for (const wire::RankSpec& rank : plan_.slots[slot].ranks) *launch.add_ranks() = rank;
  return launch;
}

void Coordinator::OnLaunched(SlotId slot, const wire::Launched& launched) {
  if (!launched.error().empty())
    return BeginEnd(kCannotStart, std::format("{}: {}", Place(slot), launched.error()));
  slots_[slot].launched = true;
  for (const wire::RankPlace& place : launched.places()) {
    if (!KnownRank(slot, place.rank())) continue;
    ranks_[place.rank()].pid = place.pid();
    ranks_[place.rank()].namespace_pid = place.namespace_pid();
    Log("rank.start", {{"rank", static_cast<std::int64_t>(place.rank())},
                       {"slot", static_cast<std::int64_t>(slot)},
                       {"node", slots_[slot].node},
                       {"pid", static_cast<std::int64_t>(place.pid())}});
  }
  if (stage_ != JobStage::kStarting || !std::ranges::all_of(slots_, &SlotState::launched)) return;
  stage_ = JobStage::kRunning;
  Log("job.running", {});
}

void Coordinator::OnRankSockets(const wire::RankSockets& sockets) {
  ranks_[sockets.rank()].sockets = sockets.sockets();
}

void Coordinator::OnRankHello(const wire::RankHello& hello) {
  RankState& rank = ranks_[hello.rank()];
  if (rank.hello) return;  // a replay
  rank.hello = true;
  rank.warning = hello.warning();
  if (std::ranges::all_of(ranks_, &RankState::hello)) TellWarnings();
}

// Ranks of one program have the same to say: each text once, with all whom it concerns.
void Coordinator::TellWarnings() {
  std::map<std::string, std::vector<RankId>> warnings;
  for (RankId rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].warning.empty()) warnings[ranks_[rank].warning].push_back(rank);
  }
  for (const auto& [text, ranks] : warnings) {
    std::string whose;
    for (const RankId rank : ranks) whose += std::format("{}{}", whose.empty() ? "" : ", ", rank);
    if (ranks.size() == ranks_.size()) whose = "all";
    actions_.push_back(Tell{std::format("warning (ranks: {}): {}", whose, text)});
  }
}

void Coordinator::OnRankFinalizing(RankId rank) {
  ranks_[rank].finalizing = true;
  if (migration_ && !IsIrrevocable(migration_->step))
    FailMigration(std::format("{} has called XMPI_Finalize", PlaceOfRank(rank)));
}

void Coordinator::OnRankExited(const wire::RankExited& exited) {
  const RankId id = exited.rank();
  RankState& rank = ranks_[id];
  if (rank.exited) return;  // a replay
  const std::string how = WhyExitFails(exited);
  if (!how.empty() && stage_ == JobStage::kRunning && LivesOn(rank.slot, how)) return;
  rank.exited = true;
  rank.wait_status = exited.wait_status();
  const int code = ExitCodeOf(exited.wait_status());
  Log("rank.exit",
      {{"rank", static_cast<std::int64_t>(id)}, {"code", static_cast<std::int64_t>(code)}});
  if (stage_ == JobStage::kEnding) return;
  if (!how.empty()) return BeginEnd(code == 0 ? 1 : code, how);
  if (exit_code_ == 0) exit_code_ = code;
  if (migration_) OnRankEndedWell(id);
  if (std::ranges::all_of(ranks_, &RankState::exited)) BeginEnd(exit_code_, "");
}

// What is wrong with the way this rank has ended; empty: nothing.
std::string Coordinator::WhyExitFails(const wire::RankExited& exited) const {
  const bool killed = WIFSIGNALED(static_cast<int>(exited.wait_status()));
  const bool stood = migration_ && StandsStill(migration_->step) && !migration_->fence_opened;
  if (!killed && exited.finalized() && !stood) return "";
  std::string_view where;
  if (!killed) where = exited.finalized() ? " inside XMPI_Quiesce" : " without finalizing MPI";
  return std::format("{} {}{}", PlaceOfRank(exited.rank()), HowItEnded(exited.wait_status()),
                     where);
}

// Whether the slot that has lost its ranks, or one of them, goes on with what is held elsewhere.
bool Coordinator::LivesOn(SlotId slot, const std::string& reason) {
  if (Move* move = UncommittedMoveOf(slot)) {
    GiveBack(*move, reason);
    return true;
  }
  Move* move = MoveFrom(slots_[slot].proxy);
  if (move == nullptr || !SurvivesInImages(*move)) return false;
  OnOriginalsLost(*move, reason);
  return true;
}

// A rank that ends while others still report that they run again has run itself.
void Coordinator::OnRankEndedWell(RankId rank) {
  if (!IsReopening(migration_->step))
    return FailMigration(std::format("{} has ended", PlaceOfRank(rank)));
  migration_->ranks[rank].running = true;
  Advance();
}

void Coordinator::OnRankAborted(const wire::RankAborted& aborted) {
  if (Move* move = UncommittedMoveOf(ranks_[aborted.rank()].slot))
    return GiveBack(*move, std::format("the copy of rank {} called MPI_Abort", aborted.rank()));
  Log("rank.abort", {{"rank", static_cast<std::int64_t>(aborted.rank())},
                     {"code", static_cast<std::int64_t>(aborted.code())}});
  // What a shell can see of the code; an abort is never a success.
  const int code = aborted.code() & 0xff;
  BeginEnd(code == 0 && aborted.code() != 0 ? 1 : code,
           std::format("{} called MPI_Abort with code {}{}{}", PlaceOfRank(aborted.rank()),
                       aborted.code(), aborted.message().empty() ? "" : ": ", aborted.message()));
}

void Coordinator::OnFenceIn(SlotId slot, const wire::FenceIn& fence) {
  pmi::FenceIn in{.id = {fence.generation(), fence.number()}, .puts = {}};
  for (const wire::KeyValue& put : fence.puts()) in.puts.push_back({put.key(), put.value()});
  const auto opened = hub_.OnFenceIn(slot, std::move(in));
  if (!opened) return BeginEnd(1, std::format("{}: {}", Place(slot), opened.error().message));
  if (!*opened) return;
  const pmi::FenceOut& fence_out = **opened;
  generation_ = fence_out.id.generation;
  wire::Envelope envelope;
  wire::FenceOut& out = *envelope.mutable_fence_out();
  out.set_generation(fence_out.id.generation);
  out.set_number(fence_out.id.n);
  for (const pmi::Put& put : fence_out.puts) {
    wire::KeyValue& each = *out.add_puts();
    each.set_key(put.key);
    each.set_value(put.value);
  }
  SendAllSlots(envelope);
  if (fence_out.id.n == 1) OnFenceOpened(fence_out.id.generation);
}

void Coordinator::OnNameRequest(SlotId slot, const wire::NameRequest& request) {
  wire::Envelope envelope;
  wire::NameReply& reply = *envelope.mutable_name_reply();
  reply.set_request(request.request());
  reply.set_rank(request.rank());
  switch (request.operation()) {
    case wire::NameRequest::PUBLISH:
      reply.set_ok(hub_.Publish(request.name(), request.port()).has_value());
      break;
    case wire::NameRequest::LOOKUP:
      if (const auto port = hub_.Lookup(request.name())) {
        reply.set_ok(true);
        reply.set_port(*port);
      }
      break;
    case wire::NameRequest::UNPUBLISH:
      reply.set_ok(hub_.Unpublish(request.name()).has_value());
      break;
    default:
      break;
  }
  Send(slot, std::move(envelope));
}

void Coordinator::OnSeatLost(SlotId slot, const std::string& reason) {
  if (stage_ == JobStage::kStarting)
    return BeginEnd(1, std::format("{} could not be started: {}", Place(slot), reason));
  if (LivesOn(slot, reason)) return;
  BeginEnd(1, std::format("{} is lost ({}), and with it rank {}; the job ends", Place(slot), reason,
                          RanksOf(slot)));
}

void Coordinator::OnEvent(const EndOrder& order) { BeginEnd(order.exit_code, order.reason); }

void Coordinator::BeginEnd(int exit_code, std::string reason) {
  if (stage_ == JobStage::kEnding) return;
  stage_ = JobStage::kEnding;
  exit_code_ = exit_code;
  if (!reason.empty()) actions_.push_back(Tell{reason});
  Log("job.end", {{"code", static_cast<std::int64_t>(exit_code)}, {"reason", reason}});
  if (migration_) {
    if (migration_->failure.empty())
      migration_->failure = reason.empty() ? "the job has ended" : reason;
    migration_->step = Step::kBroken;
    FinishMigration();
  }
  for (const EvacuateOrder& order : waiting_)
    AnswerOrder(order.request, {.reason = "the job has ended"});
  waiting_.clear();
  wire::Envelope envelope;
  envelope.mutable_terminate()->set_reason(reason);
  for (const auto& [proxy, state] : proxies_) {
    wire::Envelope copy = envelope;
    copy.mutable_header()->set_slot(proxy.slot);
    if (state.role == ProxyRole::kSeat) copy.mutable_header()->set_epoch(slots_[proxy.slot].epoch);
    copy.mutable_header()->set_attempt(proxy.attempt);
    actions_.push_back(SendMessage{proxy, std::move(copy)});
  }
  actions_.push_back(StartTimer{{.kind = TimerId::Kind::kEnd}, plan_.timeouts.end});
  EndIfAllGone();
}

std::size_t Coordinator::StateSize() const {
  std::size_t size = slots_.size() + ranks_.size() + proxies_.size() + waiting_.size();
  if (migration_) size += migration_->moves.size() + migration_->ranks.size();
  return size;
}

void Coordinator::Forget(const ProxyId& proxy) {
  proxies_.erase(proxy);
  actions_.push_back(StopProxy{proxy});
  EndIfAllGone();
}

void Coordinator::EndIfAllGone() {
  if (stage_ != JobStage::kEnding || !proxies_.empty()) return;
  stage_ = JobStage::kEnded;
  actions_.push_back(EndJob{exit_code_});
}

}  // namespace xmpi::core
