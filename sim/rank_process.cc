#include "sim/rank_process.h"

#include <format>

#include "sim/proxy.h"
#include "sim/world.h"

namespace xmpi::sim {

using rank::Reaction;
using rank::State;
using rank_link::Kind;

const char* Name(Place place) {
  constexpr const char* kNames[] = {"opening", "computing", "halo",       "safe point", "barrier",
                                    "tearing", "parked",    "finalizing", "ended"};
  return kNames[static_cast<int>(place)];
}

RankProcess::RankProcess(World* world, Proxy* proxy, Node* node, int instance, RankModel model)
    : world_(*world), proxy_(*proxy), node_(*node), instance_(instance), model_(std::move(model)) {}

void RankProcess::Begin() {
  if (model_.place == Place::kParked) return;
  After(world_.app().Between(kMs, 20 * kMs), &RankProcess::Open);
}

// At most one step is under way: what the process does next.
void RankProcess::After(Time delay, Step step) {
  const std::uint64_t number = ++steps_scheduled_;
  const Time stall = std::max(Time{0}, stalled_until_ - world_.now());
  node_.After(std::max(delay, stall), [weak = weak_from_this(), number, step] {
    const auto self = weak.lock();
    if (!self || !self->alive() || number != self->steps_scheduled_) return;
    if (self->world_.now() < self->stalled_until_) return self->After(0, step);
    if (self->stopped_) {
      self->wake_ = true;
      return;
    }
    (self.get()->*step)();
  });
}

void RankProcess::End() {
  if (!alive()) return;
  world_.mpi().Close(this);
  model_.place = Place::kEnded;
}

void RankProcess::Continue() {
  stopped_ = false;
  if (wake_) After(kMs, &RankProcess::Read);
  wake_ = false;
}

// ---- the application

void RankProcess::Compute() {
  model_.place = Place::kComputing;
  const Time step = world_.scenario().step;
  After(step / 2 + world_.app().Between(0, step), &RankProcess::EndOfCompute);
}

void RankProcess::EndOfCompute() {
  world_.mpi().Send(this, model_.passed + 1);
  model_.place = Place::kHalo;
  TryHalo();
}

void RankProcess::OnHalo() {
  if (model_.place == Place::kHalo) After(world_.app().Between(50, kMs), &RankProcess::TryHalo);
}

void RankProcess::TryHalo() {
  if (model_.place != Place::kHalo) return;
  if (!world_.mpi().HaloHere(*this, model_.passed + 1))
    return After(100 * kMs, &RankProcess::TryHalo);
  if (model_.passed >= world_.last_call()) return Finalize();
  EnterSafePoint();
}

void RankProcess::Finalize() {
  model_.place = Place::kFinalizing;
  Tell(Kind::kFinalizing);
  SendPmi("cmd=finalize");
}

void RankProcess::ExitWell() {
  SendPmi("cmd=finalize");
  Exit();
}

void RankProcess::Exit() {
  End();
  proxy_.OnRankEnded(*this, 0);
}

// ---- libxmpi: the safe point

void RankProcess::EnterSafePoint() {
  ++model_.passed;
  if (!model_.quiesce.active()) return Compute();
  model_.place = Place::kSafePoint;
  Drain();
  Pass();
}

void RankProcess::Pass() {
  switch (model_.quiesce.Next(model_.passed)) {
    case rank::Step::kGoOn:
      return LeaveSafePoint();
    case rank::Step::kWait:
      model_.place = Place::kSafePoint;
      return;
    case rank::Step::kMissed:
      world_.Violate(std::format(
          "All ranks stop at one call that lies ahead of each: rank {} is told {} in call {}",
          model_.rank, model_.quiesce.stop_call(), model_.passed));
      return;
    case rank::Step::kArrive:
      Arrive();
      return StopHere();
  }
}

void RankProcess::Arrive() {
  const bool refused = world_.TakeWorkFault(FaultKind::kRefusingRank, node_).has_value();
  model_.quiesce.Arrive(refused);
  model_.in_stop = true;
  Tell(Kind::kArrived, refused ? "a request is pending" : "");
}

void RankProcess::StopHere() {
  switch (model_.quiesce.state()) {
    case State::kArrived:
    case State::kRefused:
    case State::kChecked:
      model_.place = Place::kSafePoint;
      return;
    case State::kChecking:
    case State::kWithdrawn:
      if (model_.place == Place::kBarrier) return;
      model_.place = Place::kBarrier;
      world_.mpi().EnterBarrier(this, model_.generation, ++model_.barriers);
      return;
    case State::kTearing:
      model_.place = Place::kTearing;
      return After(world_.app().Between(kMs, 60 * kMs), &RankProcess::Torn);
    case State::kReopening:
      model_.rebuilt = true;
      model_.place = Place::kOpening;
      return After(world_.app().Between(kMs, 40 * kMs), &RankProcess::Open);
    default:
      model_.in_stop = false;
      return Pass();
  }
}

void RankProcess::OnBarrierEnd() {
  if (world_.now() < stalled_until_) return After(0, &RankProcess::OnBarrierEnd);
  const bool refused = world_.TakeWorkFault(FaultKind::kRefusingRank, node_).has_value();
  const Reaction reaction = model_.quiesce.EndCheck(refused);
  model_.place = Place::kSafePoint;
  if (reaction != Reaction::kNone)
    React(reaction);
  else
    Tell(Kind::kChecked, refused ? "an unmatched message" : "");
  Drain();
  StopHere();
}

void RankProcess::Torn() {
  world_.mpi().Close(this);
  model_.addresses.clear();
  model_.quiesce.Park();
  model_.place = Place::kParked;
  Tell(Kind::kParked);
  if (!inbox_.empty()) After(100, &RankProcess::Read);
}

void RankProcess::LeaveSafePoint() {
  if (model_.rebuilt) world_.invariants().OnReturned(*this);
  model_.rebuilt = false;
  Compute();
  if (model_.signal_pending) HandleSignal();
}

void RankProcess::OnControl(const core::RankMessage& message) {
  if (!alive()) return;
  inbox_.push_back(message);
  if (stopped_) {
    wake_ = true;
    return;
  }
  const bool waits = model_.place == Place::kSafePoint || model_.place == Place::kBarrier ||
                     model_.place == Place::kParked;
  if (waits) After(world_.app().Between(20, 500), &RankProcess::Read);
}

// What a rank that waits for a word does when one may have come.
void RankProcess::Read() {
  switch (model_.place) {
    case Place::kSafePoint:
      Drain();
      break;
    case Place::kBarrier:
      while (model_.quiesce.state() == State::kChecking && !inbox_.empty()) Drain();
      return;
    case Place::kParked:
      while (model_.quiesce.state() == State::kParked && !inbox_.empty()) Drain();
      if (model_.quiesce.state() == State::kParked) return;
      break;
    default:
      return;
  }
  model_.in_stop ? StopHere() : Pass();
}

// Reads as far as the state allows: nothing behind a check or a teardown before that is done.
void RankProcess::Drain() {
  while (!inbox_.empty()) {
    const State state = model_.quiesce.state();
    const bool in_barrier = state == State::kChecking && model_.place == Place::kBarrier;
    if (!in_barrier && (state == State::kChecking || state == State::kWithdrawn ||
                        state == State::kTearing || state == State::kReopening))
      return;
    const core::RankMessage message = std::move(inbox_.front());
    inbox_.pop_front();
    React(Take(message));
    if (in_barrier) return;
  }
}

void RankProcess::OnSignal() {
  if (!alive()) return;
  if (!model_.said_hello)
    return world_.Violate(std::format("Only a rank that has said hello is signalled: rank {} is {}",
                                      model_.rank, Name(model_.place)));
  const bool blocked = model_.place != Place::kComputing && model_.place != Place::kHalo;
  if (blocked)
    model_.signal_pending = true;
  else
    HandleSignal();
}

void RankProcess::HandleSignal() {
  model_.signal_pending = false;
  while (!inbox_.empty()) {
    const core::RankMessage message = std::move(inbox_.front());
    inbox_.pop_front();
    React(Take(message));
  }
}

Reaction RankProcess::Take(const core::RankMessage& message) {
  rank_link::Message fields = message.fields;
  const Reaction reaction = model_.quiesce.On(fields, model_.passed);
  if (fields.kind == Kind::kContinue && reaction != Reaction::kStale) {
    model_.epoch = fields.epoch;
    world_.invariants().OnRuns(*this);
  }
  return reaction;
}

void RankProcess::React(Reaction reaction) {
  if (reaction == Reaction::kReport) Tell(Kind::kNoticed);
  if (reaction == Reaction::kResume) Tell(Kind::kResumed);
}

void RankProcess::Tell(Kind kind, const std::string& refusal) {
  core::RankMessage message;
  message.fields.kind = kind;
  message.fields.passed = kind == Kind::kNoticed ? model_.quiesce.reported() : model_.passed;
  if (kind != Kind::kHello && kind != Kind::kFinalizing)
    message.fields.migration = model_.quiesce.migration();
  if (kind == Kind::kHello) {
    message.fields.thread = 2;
    message.fields.signal = 12;
  }
  message.fields.refused = !refusal.empty();
  message.text = refusal;
  proxy_.OnRankSays(*this, std::move(message));
}

}  // namespace xmpi::sim
