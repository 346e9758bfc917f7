#include "core/agent.h"

#include <algorithm>
#include <format>

#include "base/check.h"

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

void Agent::OnEvent(const LauncherSaid& said) {
  const wire::Envelope& envelope = said.envelope;
  if (!Accept(envelope)) return;
  switch (envelope.body_case()) {
    case wire::Envelope::kLaunch:
      return OnLaunch(envelope.launch());
    case wire::Envelope::kFenceOut: {
      pmi::FenceOut out{.id = {envelope.fence_out().generation(), envelope.fence_out().number()},
                        .puts = {}};
      for (const wire::KeyValue& put : envelope.fence_out().puts())
        out.puts.push_back({put.key(), put.value()});
      if (server_) Perform(server_->OnFenceOut(out));
      return;
    }
    case wire::Envelope::kNameReply:
      return OnNameReply(envelope.name_reply());
    case wire::Envelope::kTerminate:
      return OnTerminate(envelope.terminate());
    case wire::Envelope::kPrepareTarget:
      AdoptLaunch(envelope.prepare_target().launch());
      actions_.push_back(OpenTarget{launch_});
      return;
    case wire::Envelope::kPrepareSource: {
      const wire::PrepareSource& prepare = envelope.prepare_source();
      connecting_for_ = prepare.candidate_attempt();
      ConnectSource connect{{prepare.addresses().begin(), prepare.addresses().end()},
                            static_cast<std::uint16_t>(prepare.image_port()),
                            prepare.candidate_attempt(),
                            prepare.target(),
                            {prepare.sockets().begin(), prepare.sockets().end()}};
      if (prepare.precopy_ms() > 0) connect.precopy = std::chrono::milliseconds(prepare.precopy_ms());
      if (prepare.within_ms() > 0) connect.within = std::chrono::milliseconds(prepare.within_ms());
      actions_.push_back(std::move(connect));
      return;
    }
    case wire::Envelope::kNotice:
      return OnNotice(envelope.notice());
    case wire::Envelope::kAgree:
      return TellRanks(rank_link::Kind::kAgree, envelope.agree().stop_call());
    case wire::Envelope::kCheck:
      return TellRanks(rank_link::Kind::kCheck);
    case wire::Envelope::kTeardown:
      return TellRanks(rank_link::Kind::kTeardown);
    case wire::Envelope::kCancelQuiesce:
      return TellRanks(rank_link::Kind::kCancel, 0, envelope.cancel_quiesce().reason());
    case wire::Envelope::kDump:
      return OnDump(envelope.dump());
    case wire::Envelope::kRestore:
      return OnRestore(envelope.restore());
    case wire::Envelope::kContinueRanks:
      return OnContinue(envelope.continue_ranks());
    case wire::Envelope::kDiscard:
      return OnDiscard();
    case wire::Envelope::kRelease:
      role_ = Role::kReleased;
      actions_.push_back(EndRanks{.at_once = true});
      ending_ = true;
      ending_reason_ = "released";
      return LeaveIfOver();
    default:
      ++stale_messages_;
      actions_.push_back(AgentLog{
          std::format("unexpected.message body={}", static_cast<int>(envelope.body_case()))});
  }
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
  for (pmi::Action& action : actions) {
    wire::Envelope envelope;
    if (auto* reply = std::get_if<pmi::Reply>(&action)) {
      actions_.push_back(ToPmi{reply->rank, std::move(reply->bytes)});
      continue;
    }
    if (const auto* fence = std::get_if<pmi::FenceIn>(&action)) {
      wire::FenceIn& in = *envelope.mutable_fence_in();
      in.set_generation(fence->id.generation);
      in.set_number(fence->id.n);
      for (const pmi::Put& put : fence->puts) {
        wire::KeyValue& each = *in.add_puts();
        each.set_key(put.key);
        each.set_value(put.value);
      }
    } else if (const auto* aborted = std::get_if<pmi::Aborted>(&action)) {
      wire::RankAborted& message = *envelope.mutable_rank_aborted();
      message.set_rank(aborted->rank);
      message.set_code(aborted->code);
      message.set_message(aborted->message);
    } else if (const auto* error = std::get_if<pmi::ProtocolError>(&action)) {
      envelope.mutable_problem()->set_text(error->text);
      actions_.push_back(ClosePmi{error->rank});
    } else if (std::holds_alternative<pmi::Finalized>(action)) {
      continue;  // told with the exit
    } else {
      wire::NameRequest& request = *envelope.mutable_name_request();
      const auto fill = [&](const auto& name, wire::NameRequest::Operation operation) {
        request.set_request(name.request);
        request.set_rank(name.rank);
        request.set_operation(operation);
        request.set_name(name.name);
      };
      if (const auto* publish = std::get_if<pmi::Publish>(&action)) {
        fill(*publish, wire::NameRequest::PUBLISH);
        request.set_port(publish->port);
      } else if (const auto* unpublish = std::get_if<pmi::Unpublish>(&action)) {
        fill(*unpublish, wire::NameRequest::UNPUBLISH);
      } else {
        fill(std::get<pmi::Lookup>(action), wire::NameRequest::LOOKUP);
      }
    }
    Send(std::move(envelope));
  }
}

void Agent::OnNameReply(const wire::NameReply& reply) {
  if (server_) Perform(server_->OnNameResult(reply.request(), reply.ok(), reply.port()));
}

void Agent::OnEvent(const RankEnded& ended) {
  Rank& rank = ranks_[ended.rank];
  if (rank.ended) return;
  rank.ended = true;
  rank.wait_status = ended.wait_status;
  if (role_ != Role::kReleased) SayEnded(ended.rank);
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
