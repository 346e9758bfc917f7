// The work of a simulated proxy: ranks started, images made, sent, held and restored.
#include <algorithm>
#include <format>

#include "sim/proxy.h"
#include "sim/world.h"

namespace xmpi::sim {
namespace {

constexpr Time kImageProgress = 10 * kSecond;  // as LinkTimeouts::image_progress

}  // namespace

void Proxy::AddRank(RankModel model) {
  if (const auto old = ranks_.find(model.rank); old != ranks_.end()) old->second->End();
  auto process =
      std::make_shared<RankProcess>(&world_, this, &node_, world_.NextInstance(), std::move(model));
  ranks_[process->rank()] = process;
  sockets_[process->rank()] = {};
  world_.Say(ToString(id_), "rank {} is instance {}", process->rank(), process->instance());
  process->Begin();
}

std::vector<wire::RankPlace> Proxy::Places() const {
  std::vector<wire::RankPlace> places;
  for (const auto& [rank, process] : ranks_) {
    wire::RankPlace& place = places.emplace_back();
    place.set_rank(rank);
    place.set_pid(static_cast<std::uint32_t>(process->instance()));
  }
  return places;
}

void Proxy::Perform(core::StartRanks& action) {
  launch_ = action.launch;
  After(world_.app().Between(5 * kMs, 80 * kMs), [this] {
    for (const wire::RankSpec& spec : launch_.ranks()) {
      AddRank({.rank = spec.rank()});
      world_.invariants().OnRuns(*ranks_[spec.rank()]);
    }
    Deliver(core::RanksStarted{.error = {}, .places = Places()});
  });
}

void Proxy::Perform(core::OpenTarget& action) {
  launch_ = action.launch;
  After(world_.app().Between(5 * kMs, 60 * kMs), [this] {
    if (world_.TakeWorkFault(FaultKind::kRefusingTarget, node_))
      return Deliver(core::TargetPrepared{.error = "no criu", .addresses = {}, .image_port = 0});
    listens_ = true;
    Deliver(core::TargetPrepared{.error = {}, .addresses = {node_.name()}, .image_port = 7000});
  });
}

void Proxy::Perform(core::ConnectSource& action) {
  BreakImageConnection();
  const AttemptId attempt = action.candidate_attempt;
  const ProxyId candidate{id_.slot, agent_.migration(), attempt};
  const Time delay = world_.app().Between(2 * kMs, 30 * kMs);
  const std::uint64_t connect = ++connects_;
  const auto try_it = [this, attempt, candidate, connect](bool last) {
    if (connect != connects_) return true;  // withdrawn
    const auto peer = world_.FindProxy(candidate);
    const bool there = peer && peer->alive_ && peer->listens_ && CanTalk(node_, peer->node_);
    if (!there && !last) return false;
    if (there) {
      image_peer_ = peer;
      ++peer->image_connection_;
    }
    Deliver(core::SourceConnected{attempt, there ? "" : "the target does not answer"});
    return true;
  };
  After(delay, [this, try_it] {
    if (!try_it(false)) After(3 * kSecond, [try_it] { try_it(true); });
  });
}

// ---- dump

void Proxy::Perform(core::DumpRanks& action) {
  const std::uint64_t work = ++work_;
  facts_ = action.facts;
  dumped_.clear();
  std::vector<std::shared_ptr<RankProcess>> living;
  for (const auto& [rank, process] : ranks_) {
    if (process->alive()) living.push_back(process);
  }
  dumps_left_ = living.size();
  image_fault_.reset();
  for (FaultKind kind :
       {FaultKind::kSlowImages, FaultKind::kCutImages, FaultKind::kCorruptImages}) {
    if (!image_fault_) image_fault_ = world_.TakeWorkFault(kind, node_);
  }
  if (action.held) return SendHeldImages(work);
  const bool fails = world_.TakeWorkFault(FaultKind::kFailingDump, node_).has_value();
  const auto slow = world_.TakeWorkFault(FaultKind::kSlowDump, node_);
  if (living.empty() || image_peer_.expired())
    return After(kMs, [this, work] { EndDump(work, "nothing to dump, or nowhere to send it"); });
  bool first = true;
  for (const auto& process : living) {
    const Time time = world_.app().Between(20 * kMs, 200 * kMs) + (slow ? slow->duration : 0);
    After(time, [this, process, work, fails = fails && first] {
      if (work == work_) DumpOne(*process, work, fails);
    });
    first = false;
  }
}

void Proxy::DumpOne(RankProcess& rank, std::uint64_t work, bool fails) {
  if (!rank.alive()) return EndDump(work, std::format("rank {} has ended", rank.rank()));
  world_.invariants().OnDump(rank);
  // A dump that fails leaves the rank stopped, or running as it was.
  if (!fails || world_.app().Percent(50)) rank.Stop();
  if (fails) return EndDump(work, std::format("rank {}: criu refuses", rank.rank()));
  Image image{.model = rank.model(), .facts = {}};
  for (const wire::RankImage& facts : facts_) {
    if (facts.rank() == rank.rank()) image.facts = facts;
  }
  image.facts.set_bytes(1000);
  dumped_.push_back(image.facts);
  SendImage(work, std::move(image), world_.now());
  if (--dumps_left_ == 0) EndDump(work, "");
}

void Proxy::SendHeldImages(std::uint64_t work) {
  if (image_peer_.expired() || !holds_images())
    return After(kMs, [this, work] { EndDump(work, "no images to send, or nowhere to"); });
  dumped_.clear();
  for (const auto& [rank, image] : images_) SendImage(work, image, world_.now());
  After(50 * kMs, [this, work] { EndDump(work, ""); });
}

void Proxy::EndDump(std::uint64_t work, const std::string& error) {
  if (work != work_) return;
  if (!error.empty()) ++work_;
  Deliver(core::RanksDumped{.error = error,
                            .images = error.empty() ? dumped_ : std::vector<wire::RankImage>()});
  if (!error.empty()) return;
  After(world_.app().Between(kMs, 40 * kMs), [this] {
    wire::Envelope envelope;
    envelope.mutable_header()->set_slot(id_.slot);
    envelope.mutable_drained();
    link_->SendToLauncher(envelope);
  });
}

// ---- transfer

void Proxy::SendImage(std::uint64_t work, Image image, Time began) {
  Time delay = world_.app().Between(10 * kMs, 150 * kMs);
  const bool corrupt = image_fault_ && image_fault_->kind == FaultKind::kCorruptImages;
  if (image_fault_ && !corrupt) delay += image_fault_->duration;
  const auto peer = image_peer_.lock();
  if (!peer) return;
  const std::uint64_t connection = peer->image_connection_;
  After(delay, [this, work, image = std::move(image), began, corrupt, peer, connection] {
    if (work != work_ || peer != image_peer_.lock() || !peer->alive_) return;
    if (connection != peer->image_connection_) return;
    if (corrupt)
      return peer->OnImagesCannotCome(connection, "an image does not match its checksum");
    if (CanTalk(node_, peer->node_)) {
      peer->OnImage(image);
      return;
    }
    if (world_.now() - began < kImageProgress) return SendImage(work, image, began);
    peer->OnImagesCannotCome(connection, "the source does not answer");
  });
}

bool Proxy::OnImage(Image image) {
  if (arrived_) return false;
  const RankId rank = image.facts.rank();
  images_[rank] = std::move(image);
  if (images_.size() < static_cast<std::size_t>(launch_.ranks_size())) return true;
  arrived_ = true;
  core::ImagesArrived arrived{.error = {}, .wire_bytes = 1000 * images_.size(), .images = {}};
  for (const auto& [each, held] : images_) arrived.images.push_back(held.facts);
  Deliver(std::move(arrived));
  return true;
}

void Proxy::OnImagesCannotCome(std::uint64_t connection, const std::string& error) {
  After(world_.app().Between(kMs, 20 * kMs), [this, connection, error] {
    if (arrived_ || connection != image_connection_) return;
    arrived_ = true;
    arrived_error_ = error;
    Deliver(core::ImagesArrived{.error = error, .wire_bytes = 0, .images = {}});
  });
}

void Proxy::BreakImageConnection() {
  ++work_;
  const auto peer = image_peer_.lock();
  image_peer_.reset();
  if (!peer || !peer->alive_) return;
  const std::uint64_t connection = peer->image_connection_;
  peer->After(peer->source_lost_ ? kMs : kImageProgress, [peer = peer.get(), connection] {
    peer->OnImagesCannotCome(connection, "the source has gone");
  });
}

void Proxy::Perform(core::EndTransfer&) {
  source_lost_ = true;
  const bool connected = std::ranges::any_of(world_.proxies(), [this](const auto& each) {
    return each.second->image_peer_.lock().get() == this;
  });
  if (!connected) OnImagesCannotCome(image_connection_, "the source is lost");
}

// ---- restore

void Proxy::Perform(core::RestoreRanks&) {
  const std::uint64_t work = ++work_;
  // What is left of a restore before this one ends without a word.
  for (auto& [rank, process] : ranks_) process->End();
  ranks_.clear();
  const auto slow = world_.TakeWorkFault(FaultKind::kSlowRestore, node_);
  const bool fails = world_.TakeWorkFault(FaultKind::kFailingRestore, node_).has_value();
  const Time time = world_.app().Between(20 * kMs, 250 * kMs) + (slow ? slow->duration : 0);
  After(time, [this, work, fails] {
    if (work != work_) return;
    if (fails || !holds_images())
      return Deliver(core::RanksRestored{.error = "criu refuses", .places = {}});
    RestoreAll();
  });
}

void Proxy::RestoreAll() {
  for (const auto& [rank, image] : images_) AddRank(image.model);
  Deliver(core::RanksRestored{.error = {}, .places = Places()});
}

void Proxy::Perform(core::ContinueRanks&) {
  ++connects_;
  BreakImageConnection();
  for (auto& [rank, process] : ranks_) {
    if (process->alive()) process->Continue();
  }
}

void Proxy::Perform(core::EndRanks& action) {
  ++work_;
  for (auto& [rank, process] : ranks_) {
    if (!process->alive()) continue;
    world_.invariants().OnEndOrdered(*process);
    const bool kill = action.at_once || process->stopped();
    const Time delay = kill ? kMs : world_.app().Between(kMs, 300 * kMs);
    After(delay, [this, process, kill] {
      if (!process->alive()) return;
      process->End();
      OnRankEnded(*process, kill ? 9 : 15);
    });
  }
}

}  // namespace xmpi::sim
