// The proxy's part in prepare, dump, transfer and restore: on the source and on the target.
#include <format>
#include <utility>

#include "base/fault_points.h"
#include "base/log.h"
#include "criu/criu_checkpointer.h"
#include "proxy/dump.h"
#include "proxy/prepare.h"
#include "proxy/proxy.h"
#include "proxy/restore.h"

namespace xmpi::proxy {

criu::Checkpointer& Proxy::checkpointer() {
  if (!checkpointer_)
    checkpointer_ = std::make_unique<criu::CriuCheckpointer>(slot_.get(), PostFunction());
  return *checkpointer_;
}

Post Proxy::PostFunction() {
  return [this](std::function<void()> work) { asio::post(loop_, std::move(work)); };
}

// ---- prepare, on the target

void Proxy::Perform(core::OpenTarget& action) {
  launch_ = action.launch;
  const auto refuse = [this](const Error& error) {
    Deliver(core::TargetPrepared{.error = error.message});
  };
  if (Result<> begun = BeginTarget(launch_); !begun) return refuse(begun.error());
  checkpointer().Check([this, refuse](Result<criu::Preflight> checked) {
    if (!checked) return refuse(checked.error());
    if (Result<> listening = ListenForImages(*checked); !listening)
      return refuse(listening.error());
    Deliver(core::TargetPrepared{
        .error = {}, .addresses = {ImageAddress()}, .image_port = receiver_->port()});
  });
}

Result<> Proxy::BeginTarget(const wire::Launch& launch) {
  XMPI_RETURN_IF_ERROR(FAULT_POINT("prepare.before"));
  return CheckTarget(launch, *slot_, bootstrap_.node);
}

Here Proxy::HereWith(Result<criu::Preflight> criu) const {
  return {.node = bootstrap_.node,
          .version = XMPI_VERSION,
          .slot = slot_.get(),
          .criu = std::move(criu)};
}

Result<> Proxy::ListenForImages(const criu::Preflight& criu) {
  std::vector<RankId> ranks;
  for (const wire::RankSpec& rank : launch_.ranks()) ranks.push_back(rank.rank());
  XMPI_ASSIGN_OR_RETURN(
      receiver_, ImageReceiver::Start(
                     secret_,
                     {.id = {bootstrap_.job, bootstrap_.proxy},
                      .address = ImageAddress(),
                      .ports = host_.ports,
                      .ranks = std::move(ranks),
                      .limit_bytes = MemoryBytes(),
                      .timeouts = bootstrap_.timeouts,
                      .answer = [here = HereWith(criu)](
                                    const std::string& facts) { return AnswerFacts(here, facts); }},
                     PostFunction(), [this](Result<std::uint64_t> bytes) {
                       Result<> after = FAULT_POINT("transfer.after");
                       if (bytes && !after) bytes = std::unexpected(after.error());
                       Deliver(core::ImagesArrived{.error = bytes ? "" : bytes.error().message,
                                                   .bytes = bytes.value_or(0)});
                     }));
  return FAULT_POINT("prepare.after");
}

// ---- prepare, on the source

void Proxy::Perform(core::ConnectSource& action) {
  const AttemptId attempt = action.candidate_attempt;
  target_attempt_ = attempt;
  const auto refuse = [this, attempt](const Error& error) {
    Deliver(core::SourceConnected{attempt, error.message});
  };
  if (Result<> begun = BeginSource(action); !begun) return refuse(begun.error());
  checkpointer().Check([this, action, refuse](Result<criu::Preflight> checked) {
    if (action.candidate_attempt != target_attempt_) return;  // another target by now
    if (!checked) return refuse(checked.error());
    if (Result<> dialling = DialTarget(action, *checked); !dialling) refuse(dialling.error());
  });
}

Result<> Proxy::BeginSource(const core::ConnectSource&) {
  sender_.reset();
  XMPI_RETURN_IF_ERROR(FAULT_POINT("prepare.before"));
  return CheckNamespaces(*slot_);
}

Result<> Proxy::DialTarget(const core::ConnectSource& action, const criu::Preflight& criu) {
  const AttemptId attempt = action.candidate_attempt;
  XMPI_ASSIGN_OR_RETURN(
      sender_,
      ImageSender::Start(
          secret_,
          {.id = {bootstrap_.job, {bootstrap_.proxy.slot, agent_.migration(), attempt}},
           .addresses = action.addresses,
           .port = action.image_port,
           .timeouts = bootstrap_.timeouts,
           .facts =
               [here = HereWith(criu), launch = launch_, ranks = ranks_.Living()] {
                 return LookAtSource(here, launch, ranks).SerializeAsString();
               },
           .judge = JudgeFindings},
          PostFunction(),
          [this, attempt](Result<> connected) {
            if (!sender_ || sender_->attempt() != attempt) return;
            if (connected) connected = FAULT_POINT("prepare.after");
            Deliver(core::SourceConnected{attempt, connected ? "" : connected.error().message});
          },
          [](Result<std::uint64_t> bytes) {
            (void)FAULT_POINT("transfer.after");
            // The candidate tells the launcher; here it is for whoever reads the log.
            if (bytes) {
              log::Info("transfer.sent", {{"bytes", *bytes}});
            } else {
              log::Warn("transfer.failed", {{"why", bytes.error().message}});
            }
          }));
  return {};
}

// ---- dump

void Proxy::Perform(core::DumpRanks&) {
  input_.Pause();
  if (Result<> before = FAULT_POINT("dump.before"); !before)
    return OnDumped(std::unexpected(before.error()));
  if (!sender_) return OnDumped(Fail("there is no image connection"));
  if (Result<> parked = CheckParked(HereWith({}), ranks_.Living()); !parked)
    return OnDumped(std::unexpected(parked.error()));
  dumping_ = true;
  (void)FAULT_POINT("transfer.before");
  DumpRanks(
      ranks_.Living(), &checkpointer(),
      [this](image::RankImage image) {
        if (sender_) sender_->Add(std::move(image));
      },
      [this](Result<std::vector<wire::RankImage>> images) { OnDumped(std::move(images)); });
}

void Proxy::OnDumped(Result<std::vector<wire::RankImage>> images) {
  dumping_ = false;
  if (std::exchange(continue_when_dumped_, false)) return ContinueOriginals();
  if (Result<> after = FAULT_POINT("dump.after"); images && !after)
    images = std::unexpected(after.error());
  if (!images) return Deliver(core::RanksDumped{.error = images.error().message});
  if (sender_) sender_->Finish();
  for (wire::RankImage& image : *images) {
    const bool takes_stdin = std::ranges::any_of(launch_.ranks(), [&](const wire::RankSpec& rank) {
      return rank.rank() == image.rank() && rank.takes_stdin();
    });
    if (!takes_stdin) continue;
    image.set_input(std::string(input_.held()));
    image.set_input_ended(input_.ended());
  }
  // The originals are stopped: what is in their pipes now is all that they will ever write here,
  // unless they go on in place.
  output_.TellEnds(false);
  output_.DrainAll([this] {
    wire::Envelope envelope = NewEnvelope();
    envelope.mutable_drained()->set_bytes(output_.bytes_sent());
    Send(envelope);
  });
  Deliver(core::RanksDumped{.error = {}, .images = std::move(*images)});
}

void Proxy::Perform(core::ContinueRanks&) {
  if (!dumping_) return ContinueOriginals();
  continue_when_dumped_ = true;  // not while CRIU holds them
  checkpointer_->Cancel();
}

void Proxy::ContinueOriginals() {
  for (const auto& [rank, process] : ranks_.Living()) {
    if (Result<> continued = checkpointer().Continue(process.pid); !continued)
      log::Error("dump.continue", {{"rank", rank}, {"why", continued.error().message}});
  }
  sender_.reset();
  output_.TellEnds(true);
  input_.Resume();
}

// ---- restore

void Proxy::Perform(core::RestoreRanks& action) {
  const auto tell = [this](Result<std::vector<wire::RankPlace>> places) {
    if (Result<> after = FAULT_POINT("restore.after"); places && !after)
      places = std::unexpected(after.error());
    core::RanksRestored restored;
    if (places) {
      restored.places = std::move(*places);
    } else {
      restored.error = places.error().message;
    }
    Deliver(std::move(restored));
  };
  // Until the launcher says go on, the originals may still be the ones who take input.
  input_.Pause();
  for (const wire::RankImage& image : action.images) {
    if (!image.input().empty() || image.input_ended())
      input_.Feed(image.input(), image.input_ended());
  }
  Result<std::vector<image::RankImage>> images = TakeImages();
  if (!images) return tell(std::unexpected(images.error()));
  RestoreRanks(std::move(*images), launch_.bind_to(), slot_.get(), &checkpointer(), &ranks_, tell);
}

Result<std::vector<image::RankImage>> Proxy::TakeImages() {
  XMPI_RETURN_IF_ERROR(FAULT_POINT("restore.before"));
  if (!receiver_) return Fail("no images are held here");
  std::vector<image::RankImage> images;
  for (const wire::RankSpec& rank : launch_.ranks()) {
    XMPI_ASSIGN_OR_RETURN(image::RankImage image, receiver_->Take(rank.rank()));
    images.push_back(std::move(image));
  }
  receiver_.reset();
  return images;
}

}  // namespace xmpi::proxy
