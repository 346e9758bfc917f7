// The proxy's part of prepare, dump, transfer and restore: on the source and on the target.
#include <algorithm>

#include "core/agent.h"

namespace xmpi::core {

void Agent::OnEvent(const TargetPrepared& prepared) {
  wire::Envelope envelope;
  wire::TargetReady& ready = *envelope.mutable_target_ready();
  ready.set_error(prepared.error);
  for (const std::string& address : prepared.addresses) ready.add_addresses(address);
  ready.set_image_port(prepared.image_port);
  Send(std::move(envelope));
}

void Agent::OnEvent(const SourceConnected& connected) {
  if (connecting_for_ != connected.candidate_attempt) return;  // withdrawn in the meantime
  connecting_for_.reset();
  wire::Envelope envelope;
  envelope.mutable_source_ready()->set_error(connected.error);
  envelope.mutable_source_ready()->set_candidate_attempt(connected.candidate_attempt);
  if (connected.plan.rounds() > 0)
    *envelope.mutable_source_ready()->mutable_plan() = connected.plan;
  Send(std::move(envelope));
}

void Agent::OnDump(const wire::Dump& dump) {
  dumping_for_ = dump.candidate_attempt();
  DumpRanks action{.candidate_attempt = dump.candidate_attempt(),
                   .held = dump.held(),
                   .timeout = std::chrono::milliseconds(dump.timeout_ms()),
                   .facts = {}};
  for (const auto& [rank, state] : ranks_) {
    wire::RankImage image;
    image.set_rank(rank);
    AddFacts(&image);
    action.facts.push_back(std::move(image));
  }
  actions_.push_back(std::move(action));
}

// What the next proxy must know of a rank and cannot learn from its image.
void Agent::AddFacts(wire::RankImage* image) const {
  const Rank& rank = ranks_.at(image->rank());
  image->set_generation(server_ ? server_->GenerationOf(image->rank()) : 0);
  image->set_thread(rank.thread);
  image->set_signal(rank.signal);
}

void Agent::OnEvent(const RanksDumped& dumped) {
  if (!dumping_for_) return;  // withdrawn in the meantime
  wire::Envelope envelope;
  wire::Dumped& message = *envelope.mutable_dumped();
  message.set_error(dumped.error);
  message.set_candidate_attempt(*dumping_for_);
  dumping_for_.reset();
  for (const wire::RankImage& each : dumped.images) {
    wire::RankImage& image = *message.add_images();
    image = each;
    AddFacts(&image);
  }
  Send(std::move(envelope));
}

void Agent::OnEvent(const ImagesArrived& arrived) {
  wire::Envelope envelope;
  envelope.mutable_images_held()->set_error(arrived.error);
  envelope.mutable_images_held()->set_wire_bytes(arrived.wire_bytes);
  for (const wire::RankImage& image : arrived.images)
    *envelope.mutable_images_held()->add_images() = image;
  Send(std::move(envelope));
}

// Asked again while it is under way or done, the answer is the one to the first: two restores of
// one rank would be two ranks.
void Agent::OnRestore(const wire::Restore& restore) {
  if (restore_ == Restore::kUnderWay) return;
  const bool all_live =
      std::ranges::none_of(ranks_, [](const auto& each) { return each.second.ended; });
  if (restore_ == Restore::kDone && all_live) return SayRestored("");
  restore_ = Restore::kUnderWay;
  for (const wire::RankImage& image : restore.images()) {
    Rank& rank = ranks_[image.rank()];
    const int appnum = rank.appnum;
    rank = {};
    rank.appnum = appnum;
    rank.hello = true;
    rank.thread = image.thread();
    rank.signal = image.signal();
    rank.generation = image.generation();
  }
  OpenPmi(launch_.process_mapping());
  actions_.push_back(RestoreRanks{{restore.images().begin(), restore.images().end()},
                                  std::chrono::milliseconds(restore.timeout_ms())});
}

void Agent::OnEvent(const RanksRestored& restored) {
  restore_ = restored.error.empty() ? Restore::kDone : Restore::kNone;
  restored_places_ = restored.places;
  for (const wire::RankPlace& place : restored.places) ranks_[place.rank()].started = true;
  SayRestored(restored.error);
}

void Agent::SayRestored(const std::string& error) {
  wire::Envelope envelope;
  wire::Restored& message = *envelope.mutable_restored();
  message.set_error(error);
  for (const wire::RankPlace& place : restored_places_) *message.add_places() = place;
  Send(std::move(envelope));
}

// The move is off. A source's ranks go on where they are; a candidate has no reason to stay.
void Agent::OnDiscard() {
  connecting_for_.reset();
  dumping_for_.reset();
  if (role_ == Role::kSeat) {
    actions_.push_back(ContinueRanks{});
    return;
  }
  role_ = Role::kReleased;
  ending_ = true;
  ending_reason_ = "discarded";
  actions_.push_back(EndRanks{.at_once = true});
  LeaveIfOver();
}

}  // namespace xmpi::core
