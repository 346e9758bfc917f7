// The proxy's part of quiesce and reconnect: it passes the launcher's words to each rank,
// gathers the answers to a notice, and passes on what each rank reports.
#include <algorithm>
#include <utility>

#include "core/agent.h"

namespace xmpi::core {

using rank_link::Kind;

void Agent::Tell(RankId rank, Kind kind, std::uint64_t stop_call, const std::string& text,
                 const std::string& name) {
  RankMessage message;
  message.fields.kind = kind;
  message.fields.slot = id_.slot;
  message.fields.epoch = epoch_;
  message.fields.migration = migration_;
  message.fields.attempt = id_.attempt;
  message.fields.stop_call = stop_call;
  message.text = text;
  message.name = name;
  actions_.push_back(ToRank{rank, std::move(message)});
}

void Agent::TellRanks(Kind kind, std::uint64_t stop_call, const std::string& text) {
  for (const auto& [rank, state] : ranks_) {
    if (state.hello && !state.ended) Tell(rank, kind, stop_call, text);
  }
}

void Agent::OnNotice() {
  for (auto& [rank, state] : ranks_) {
    // Before hello and after finalizing a signal could kill; the launcher knows of both.
    if (!state.hello || state.finalizing || state.ended) continue;
    Tell(rank, Kind::kNotice, 0, "");
    actions_.push_back(SignalRank{rank, state.thread, state.signal});
  }
}

void Agent::SendNoticedIfAll() {
  const bool all =
      std::ranges::all_of(ranks_, [](const auto& each) { return each.second.noticed; });
  if (!all) return;
  wire::Envelope envelope;
  wire::Noticed& noticed = *envelope.mutable_noticed();
  for (const auto& [rank, state] : ranks_) noticed.add_passed(state.passed);
  Send(std::move(envelope));
}

void Agent::OnEvent(const RankSaid& said) {
  const Kind kind = said.message.fields.kind;
  if (kind == Kind::kHello) return OnHello(said);
  if (kind == Kind::kSockets) return OnSockets(said);
  if (kind == Kind::kFinalizing) return OnFinalizing(said);
  if (said.message.fields.migration != migration_) {  // of a migration that was cancelled
    ++stale_messages_;
    return;
  }
  if (kind == Kind::kNoticed) return OnNoticed(said);
  PassOn(said);
}

void Agent::OnHello(const RankSaid& said) {
  Rank& rank = ranks_[said.rank];
  rank.hello = true;
  rank.thread = said.message.fields.thread;
  rank.signal = said.message.fields.signal;
  wire::Envelope envelope;
  envelope.mutable_rank_hello()->set_rank(said.rank);
  envelope.mutable_rank_hello()->set_warning(said.message.text);
  Send(std::move(envelope));
}

void Agent::OnSockets(const RankSaid& said) {
  wire::Envelope envelope;
  envelope.mutable_rank_sockets()->set_rank(said.rank);
  envelope.mutable_rank_sockets()->set_sockets(said.message.text);
  Send(std::move(envelope));
}

void Agent::OnFinalizing(const RankSaid& said) {
  ranks_[said.rank].finalizing = true;
  wire::Envelope envelope;
  envelope.mutable_rank_finalizing()->set_rank(said.rank);
  Send(std::move(envelope));
}

void Agent::OnNoticed(const RankSaid& said) {
  Rank& rank = ranks_[said.rank];
  rank.passed = said.message.fields.passed;
  if (!std::exchange(rank.noticed, true)) SendNoticedIfAll();
}

// What the launcher wants to hear from each rank itself.
void Agent::PassOn(const RankSaid& said) {
  const rank_link::Message& fields = said.message.fields;
  const std::string refusal = fields.refused ? said.message.text : "";
  wire::Envelope envelope;
  switch (fields.kind) {
    case Kind::kArrived:
      envelope.mutable_arrived()->set_rank(said.rank);
      envelope.mutable_arrived()->set_refusal(refusal);
      break;
    case Kind::kChecked:
      envelope.mutable_checked()->set_rank(said.rank);
      envelope.mutable_checked()->set_refusal(refusal);
      break;
    case Kind::kParked:
      envelope.mutable_parked()->set_rank(said.rank);
      break;
    case Kind::kRunning:
      envelope.mutable_running()->set_rank(said.rank);
      break;
    case Kind::kResumed:
      envelope.mutable_resumed()->set_rank(said.rank);
      break;
    default:
      ++stale_messages_;
      return;
  }
  Send(std::move(envelope));
}

void Agent::OnContinue(const wire::Continue& message) {
  role_ = Role::kSeat;
  if (server_) server_->SetMapping(message.process_mapping());
  for (const auto& [rank, state] : ranks_) {
    if (state.ended) {
      // Said before, perhaps under an epoch that counted for nothing.
      SayEnded(rank);
      continue;
    }
    Tell(rank, Kind::kEnv, 0, hostname_, "PMI_HOSTNAME");
    for (const wire::EnvironmentVariable& variable : environment_)
      Tell(rank, Kind::kEnv, 0, variable.value(), variable.name());
    for (const wire::EnvironmentVariable& variable : message.environment())
      Tell(rank, Kind::kEnv, 0, variable.value(), variable.name());
    Tell(rank, Kind::kContinue, 0, "");
  }
}

}  // namespace xmpi::core
