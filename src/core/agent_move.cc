// The proxy's part of prepare, dump, transfer and restore: on the source and on the target.
#include <algorithm>

#include "core/agent.h"

namespace xmpi::core {

void Agent::OnPrepareTarget(const wire::PrepareTarget& prepare) {
  AdoptLaunch(prepare.launch());
  actions_.push_back(OpenTarget{launch_});
}

void Agent::OnPrepareSource(const wire::PrepareSource& prepare) {
  connecting_for_ = prepare.candidate_attempt();
  ConnectSource connect{{prepare.addresses().begin(), prepare.addresses().end()},
                        static_cast<std::uint16_t>(prepare.image_port()),
                        prepare.candidate_attempt(),
                        prepare.target(),
                        {prepare.sockets().begin(), prepare.sockets().end()}};
  if (prepare.precopy_ms() > 0) connect.precopy = std::chrono::milliseconds(prepare.precopy_ms());
  if (prepare.within_ms() > 0) connect.within = std::chrono::milliseconds(prepare.within_ms());
  actions_.push_back(std::move(connect));
}

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
// one rank would be two ranks. Copies that have been continued since are of no use any more.
void Agent::OnRestore(const wire::Restore& restore) {
  if (restore_ == Restore::kUnderWay) return;
  const bool all_wait =
      role_ == Role::kCandidate &&
      std::ranges::none_of(ranks_, [](const auto& each) { return each.second.ended; });
  if (restore_ == Restore::kDone && all_wait) return SayRestored("");
  role_ = Role::kCandidate;
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
  if (restore_ != Restore::kDone) return;
  for (const auto& [rank, state] : ranks_) {
    if (state.ended) SayEnded(rank);
  }
}

void Agent::SayRestored(const std::string& error) {
  wire::Envelope envelope;
  wire::Restored& message = *envelope.mutable_restored();
  message.set_error(error);
  for (const wire::RankPlace& place : restored_places_) *message.add_places() = place;
  Send(std::move(envelope));
}

// The move is off. A source's ranks go on where they are; whoever came for this migration has no
// reason to stay, also when its copies have been continued in the meantime.
void Agent::OnDiscard() {
  connecting_for_.reset();
  dumping_for_.reset();
  if (migration_ == id_.migration) return EndAtOnce("discarded");
  actions_.push_back(ContinueRanks{});
}

}  // namespace xmpi::core
