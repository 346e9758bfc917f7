#include "core/agent.h"

#include <algorithm>
#include <format>
#include <utility>

namespace xmpi::core {

Agent::Agent(ProxyId id, std::string hostname, std::vector<wire::EnvironmentVariable> environment,
             PmiKeys pmi_keys)
    : id_(id),
      hostname_(std::move(hostname)),
      environment_(std::move(environment)),
      pmi_keys_(std::move(pmi_keys)),
      role_(id.migration == 0 ? Role::kSeat : Role::kCandidate),
      migration_(id.migration) {}

AgentActions Agent::On(const AgentEvent& event) {
  actions_.clear();
  std::visit([this](const auto& what) { OnEvent(what); }, event);
  return std::move(actions_);
}

bool Agent::ranks_alive() const {
  return std::ranges::any_of(
      ranks_, [](const auto& each) { return each.second.started && !each.second.ended; });
}

bool Agent::Accept(const wire::Envelope& envelope) {
  const wire::Header& header = envelope.header();
  const bool stale = header.slot() != id_.slot || header.attempt() != id_.attempt ||
                     (header.epoch() != 0 && header.epoch() < epoch_) ||
                     (header.migration() != 0 && header.migration() < migration_);
  if (stale) {
    ++stale_messages_;
    actions_.push_back(
        AgentLog{std::format("stale.message body={} epoch={} migration={} attempt={}",
                             static_cast<int>(envelope.body_case()), header.epoch(),
                             header.migration(), header.attempt())});
    return false;
  }
  epoch_ = std::max(epoch_, header.epoch());
  if (header.migration() > migration_) {
    migration_ = header.migration();
    connecting_for_.reset();
    for (auto& [rank, state] : ranks_) state.noticed = false;
  }
  return true;
}

// What the launcher may say.
struct Agent::LauncherMessage {
  wire::Envelope::BodyCase body;
  void (*act)(Agent& self, const wire::Envelope& said);
};

const Agent::LauncherMessage* Agent::FindLauncherMessage(wire::Envelope::BodyCase body) {
  using E = wire::Envelope;
  using rank_link::Kind;
  static constexpr LauncherMessage kMessages[] = {
      {E::kLaunch, [](auto& self, const E& e) { self.OnLaunch(e.launch()); }},
      {E::kFenceOut, [](auto& self, const E& e) { self.OnFenceOut(e.fence_out()); }},
      {E::kNameReply, [](auto& self, const E& e) { self.OnNameReply(e.name_reply()); }},
      {E::kTerminate, [](auto& self, const E& e) { self.OnTerminate(e.terminate()); }},
      {E::kPrepareTarget, [](auto& self, const E& e) { self.OnPrepareTarget(e.prepare_target()); }},
      {E::kPrepareSource, [](auto& self, const E& e) { self.OnPrepareSource(e.prepare_source()); }},
      {E::kNotice, [](auto& self, const E&) { self.OnNotice(); }},
      {E::kAgree,
       [](auto& self, const E& e) { self.TellRanks(Kind::kAgree, e.agree().stop_call()); }},
      {E::kCheck, [](auto& self, const E&) { self.TellRanks(Kind::kCheck); }},
      {E::kTeardown, [](auto& self, const E&) { self.TellRanks(Kind::kTeardown); }},
      {E::kCancelQuiesce,
       [](auto& self, const E& e) {
         self.TellRanks(Kind::kCancel, 0, e.cancel_quiesce().reason());
       }},
      {E::kDump, [](auto& self, const E& e) { self.OnDump(e.dump()); }},
      {E::kSourceLost, [](auto& self, const E&) { self.actions_.push_back(EndTransfer{}); }},
      {E::kRestore, [](auto& self, const E& e) { self.OnRestore(e.restore()); }},
      {E::kContinueRanks, [](auto& self, const E& e) { self.OnContinue(e.continue_ranks()); }},
      {E::kDiscard, [](auto& self, const E&) { self.OnDiscard(); }},
      {E::kRelease, [](auto& self, const E&) { self.EndAtOnce("released"); }},
  };
  const auto* found = std::ranges::find(kMessages, body, &LauncherMessage::body);
  return found == std::end(kMessages) ? nullptr : found;
}

void Agent::OnEvent(const LauncherSaid& said) {
  const wire::Envelope& envelope = said.envelope;
  if (!Accept(envelope)) return;
  if (const LauncherMessage* known = FindLauncherMessage(envelope.body_case()))
    return known->act(*this, envelope);
  ++stale_messages_;
  actions_.push_back(
      AgentLog{std::format("unexpected.message body={}", static_cast<int>(envelope.body_case()))});
}

void Agent::OnFenceOut(const wire::FenceOut& fence) {
  pmi::FenceOut out{.id = {fence.generation(), fence.number()}, .puts = {}};
  for (const wire::KeyValue& put : fence.puts()) out.puts.push_back({put.key(), put.value()});
  if (server_) Perform(server_->OnFenceOut(out));
}

void Agent::AdoptLaunch(const wire::Launch& launch) {
  launch_ = launch;
  ranks_.clear();
  for (const wire::RankSpec& rank : launch.ranks())
    ranks_[rank.rank()].appnum = static_cast<int>(rank.appnum());
}

void Agent::OpenPmi(const std::string& mapping) {
  pmi::SlotFacts facts{.ranks = {},
                       .universe_size = launch_.universe_size(),
                       .mapping = mapping,
                       .keys = pmi_keys_,
                       .kvs_prefix = launch_.kvs_prefix()};
  for (const auto& [rank, state] : ranks_)
    facts.ranks.push_back({.rank = rank, .appnum = state.appnum, .generation = state.generation});
  server_.emplace(std::move(facts));
}

void Agent::OnLaunch(const wire::Launch& launch) {
  if (server_) return;  // a replay
  AdoptLaunch(launch);
  OpenPmi(launch.process_mapping());
  actions_.push_back(StartRanks{launch});
}

void Agent::OnEvent(const RanksStarted& started) {
  wire::Envelope envelope;
  wire::Launched& launched = *envelope.mutable_launched();
  launched.set_error(started.error);
  for (const wire::RankPlace& place : started.places) {
    ranks_[place.rank()].started = true;
    *launched.add_places() = place;
  }
  Send(std::move(envelope));
  LeaveIfOver();
}

void Agent::OnEvent(const RankPmi& pmi) {
  if (server_) Perform(server_->Feed(pmi.rank, pmi.bytes));
}

void Agent::Perform(pmi::Actions actions) {
  for (pmi::Action& action : actions)
    std::visit([this](auto& what) { Perform(std::move(what)); }, action);
}

void Agent::Perform(pmi::Reply reply) {
  actions_.push_back(ToPmi{reply.rank, std::move(reply.bytes)});
}

void Agent::Perform(pmi::FenceIn fence) {
  wire::Envelope envelope;
  wire::FenceIn& in = *envelope.mutable_fence_in();
  in.set_generation(fence.id.generation);
  in.set_number(fence.id.n);
  for (const pmi::Put& put : fence.puts) {
    wire::KeyValue& each = *in.add_puts();
    each.set_key(put.key);
    each.set_value(put.value);
  }
  Send(std::move(envelope));
}

void Agent::Perform(pmi::Aborted aborted) {
  wire::Envelope envelope;
  wire::RankAborted& message = *envelope.mutable_rank_aborted();
  message.set_rank(aborted.rank);
  message.set_code(aborted.code);
  message.set_message(aborted.message);
  Send(std::move(envelope));
}

void Agent::Perform(pmi::ProtocolError error) {
  wire::Envelope envelope;
  envelope.mutable_problem()->set_text(error.text);
  actions_.push_back(ClosePmi{error.rank});
  Send(std::move(envelope));
}

void Agent::Perform(pmi::Finalized) {}  // told with the exit

void Agent::Perform(pmi::Publish publish) {
  AskForName(publish, wire::NameRequest::PUBLISH, publish.port);
}

void Agent::Perform(pmi::Unpublish unpublish) {
  AskForName(unpublish, wire::NameRequest::UNPUBLISH);
}

void Agent::Perform(pmi::Lookup lookup) { AskForName(lookup, wire::NameRequest::LOOKUP); }

void Agent::AskForName(const auto& asked, wire::NameRequest::Operation operation,
                       const std::string& port) {
  wire::Envelope envelope;
  wire::NameRequest& request = *envelope.mutable_name_request();
  request.set_request(asked.request);
  request.set_rank(asked.rank);
  request.set_operation(operation);
  request.set_name(asked.name);
  request.set_port(port);
  Send(std::move(envelope));
}

void Agent::OnNameReply(const wire::NameReply& reply) {
  if (server_) Perform(server_->OnNameResult(reply.request(), reply.ok(), reply.port()));
}

void Agent::OnEvent(const RankEnded& ended) {
  Rank& rank = ranks_[ended.rank];
  if (rank.ended) return;
  rank.ended = true;
  rank.wait_status = ended.wait_status;
  const bool is_told = role_ != Role::kReleased && restore_ != Restore::kUnderWay;
  if (is_told) SayEnded(ended.rank);
  LeaveIfOver();
}

void Agent::SayEnded(RankId rank) {
  wire::Envelope envelope;
  wire::RankExited& exited = *envelope.mutable_rank_exited();
  exited.set_rank(rank);
  exited.set_wait_status(ranks_[rank].wait_status);
  exited.set_finalized(!server_ || !server_->IsOpen(rank));
  Send(std::move(envelope));
}

std::size_t Agent::StateSize() const {
  return ranks_.size() + (server_ ? server_->live_generations() : 0);
}

void Agent::OnTerminate(const wire::Terminate& terminate) {
  if (ending_) return;
  ending_ = true;
  ending_reason_ = terminate.reason();
  actions_.push_back(EndRanks{.at_once = role_ == Role::kCandidate});
  LeaveIfOver();
}

// Another has taken the seat, or keeps it: whatever lives here ends without a word.
void Agent::EndAtOnce(std::string reason) {
  role_ = Role::kReleased;
  ending_ = true;
  ending_reason_ = std::move(reason);
  actions_.push_back(EndRanks{.at_once = true});
  LeaveIfOver();
}

void Agent::LeaveIfOver() {
  if (ending_ && !ranks_alive()) actions_.push_back(Leave{ending_reason_});
}

void Agent::Send(wire::Envelope envelope) {
  wire::Header& header = *envelope.mutable_header();
  header.set_slot(id_.slot);
  header.set_epoch(epoch_);
  header.set_migration(migration_);
  header.set_attempt(id_.attempt);
  actions_.push_back(ToLauncher{std::move(envelope)});
}

}  // namespace xmpi::core
