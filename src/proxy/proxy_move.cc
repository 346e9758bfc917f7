// The proxy's part in prepare, dump, transfer and restore: on the source and on the target.
#include <algorithm>
#include <format>
#include <memory>
#include <span>
#include <thread>
#include <utility>

#include "base/fault_points.h"
#include "base/log.h"
#include "criu/criu_checkpointer.h"
#include "criu/process_tree.h"
#include "image/process_memory.h"
#include "proxy/dump.h"
#include "proxy/held.h"
#include "proxy/prepare.h"
#include "proxy/proxy.h"
#include "proxy/restore.h"

namespace xmpi::proxy {

namespace {

// As many as can be busy: each takes a core on either side.
unsigned Lanes() { return std::clamp(std::thread::hardware_concurrency(), 1u, 4u); }

// The memory of processes that may end while it is read, as children of ranks do: then there is
// nothing more to send of it.
class RunningMemory : public image::PageSource {
 public:
  explicit RunningMemory(int proc_fd) : memory_(proc_fd) {}
  Result<std::size_t> Read(pid_t pid, std::uint64_t address, std::span<std::byte> out) override {
    return memory_.Read(pid, address, out).value_or(0);
  }

 private:
  image::ProcessMemory memory_;
};

std::function<Result<std::vector<PageJob>>()> Scanner(Living ranks, int proc_fd) {
  auto memory = std::make_shared<RunningMemory>(proc_fd);
  return [ranks = std::move(ranks), proc_fd, memory]() -> Result<std::vector<PageJob>> {
    std::vector<PageJob> jobs;
    for (const auto& [rank, process] : ranks) {
      for (const criu::Process& each : criu::ReadTree(proc_fd, process.pid)) {
        // One that has just ended is none of the dump's, either.
        if (Result<std::vector<image::PageRun>> runs = image::Scan(proc_fd, each.pid))
          jobs.push_back({rank, each.pid, memory, std::move(*runs)});
      }
    }
    return jobs;
  };
}

}  // namespace

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
  if (Result<> begun = FAULT_POINT("prepare.before"); !begun) return refuse(begun.error());
  checkpointer().Check([this, refuse](Result<criu::Preflight> checked) {
    if (!checked) return refuse(checked.error());
    if (Result<> listening = ListenForImages(*checked); !listening)
      return refuse(listening.error());
    Deliver(core::TargetPrepared{
        .error = {}, .addresses = {ImageAddress()}, .image_port = receiver_->port()});
  });
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
  ImageReceiver::Options options{
      .id = {bootstrap_.job, bootstrap_.proxy},
      .address = ImageAddress(),
      .ports = host_.ports,
      .ranks = std::move(ranks),
      .limit_bytes = MemoryBytes(),
      .timeouts = bootstrap_.timeouts,
      .answers = {.facts = [here = HereWith(criu)](
                               const std::string& facts) { return AnswerFacts(here, facts); },
                  .look = checkpointer().Looker()}};
  XMPI_ASSIGN_OR_RETURN(receiver_, ImageReceiver::Start(secret_, std::move(options), PostFunction(),
                                                        [this](Result<std::uint64_t> bytes) {
                                                          OnImages(std::move(bytes));
                                                        }));
  return FAULT_POINT("prepare.after");
}

void Proxy::OnImages(Result<std::uint64_t> bytes) {
  if (Result<> after = FAULT_POINT("transfer.after"); bytes && !after)
    bytes = std::unexpected(after.error());
  Result<std::vector<wire::RankImage>> facts =
      bytes ? HeldFacts() : Result<std::vector<wire::RankImage>>(std::unexpected(bytes.error()));
  if (!facts) return Deliver(core::ImagesArrived{.error = facts.error().message});
  Deliver(core::ImagesArrived{.error = {}, .wire_bytes = *bytes, .images = std::move(*facts)});
}

void Proxy::Perform(core::EndTransfer&) {
  if (receiver_) receiver_->ExpectNobody();
}

// They stay here, however often they are restored or sent on.
Result<std::vector<HeldImage>> Proxy::HeldImages() const {
  if (!receiver_) return Fail("no images are held here");
  std::vector<HeldImage> images;
  for (const wire::RankSpec& rank : launch_.ranks()) {
    XMPI_ASSIGN_OR_RETURN(HeldImage image, receiver_->Image(rank.rank()));
    images.push_back(std::move(image));
  }
  return images;
}

Result<std::vector<wire::RankImage>> Proxy::HeldFacts() const {
  std::vector<wire::RankImage> facts;
  for (const wire::RankSpec& rank : launch_.ranks()) {
    XMPI_ASSIGN_OR_RETURN(wire::RankImage each,
                          FactsOf(rank.rank(), receiver_->NoteOf(rank.rank())));
    facts.push_back(std::move(each));
  }
  return facts;
}

// ---- prepare, on the source

namespace {

preflight::ClosingSockets ClosingOf(const std::vector<wire::RankSockets>& lists) {
  preflight::ClosingSockets closing;
  for (const wire::RankSockets& each : lists) closing.Add(each.rank(), each.sockets());
  return closing;
}

}  // namespace

void Proxy::Perform(core::ConnectSource& action) {
  if (filling_) {  // its pages are not all where a dump would look for them
    connect_when_filled_ = std::move(action);
    return;
  }
  const std::uint64_t connecting = ++connecting_;
  const auto refuse = [this, attempt = action.candidate_attempt](const Error& error) {
    Deliver(core::SourceConnected{attempt, error.message});
  };
  if (Result<> begun = BeginSource(action); !begun) return refuse(begun.error());
  checkpointer().Check([this, action, refuse, connecting](Result<criu::Preflight> checked) {
    if (connecting != connecting_) return;  // withdrawn in the meantime
    if (!checked) return refuse(checked.error());
    if (Result<> dialling = DialTarget(action, *checked); !dialling) refuse(dialling.error());
  });
}

Result<> Proxy::BeginSource(const core::ConnectSource&) {
  sender_.reset();
  return FAULT_POINT("prepare.before");
}

Result<> Proxy::DialTarget(const core::ConnectSource& action, const criu::Preflight& criu) {
  const AttemptId attempt = action.candidate_attempt;
  files_ = std::make_shared<FilePolicy>(FilePolicy{.carry = bootstrap_.carry_files});
  FileRules rules{.source = bootstrap_.node, .target = action.target, .carry = files_->carry};
  std::function<std::vector<image::HeldFile>()> held = [ranks = ranks_.Living(),
                                                        checkpointer = &checkpointer()] {
    return HeldFiles(ranks, *checkpointer);
  };
  if (receiver_) {  // the ranks are what is held here
    XMPI_ASSIGN_OR_RETURN(std::vector<HeldImage> here, HeldImages());
    std::vector<image::RankImage> images;
    for (HeldImage& each : here) images.push_back(std::move(each.image));
    held = [files = HeldFiles(images)] { return files; };
    rules.hashes = HashesOf(images);
  }
  // Whatever is in the way is told at once, of the nodes and ranks or of the files.
  const auto all = std::make_shared<wire::Findings>();
  XMPI_ASSIGN_OR_RETURN(
      sender_,
      ImageSender::Start(
          secret_,
          {.id = {bootstrap_.job, {bootstrap_.proxy.slot, agent_.migration(), attempt}},
           .addresses = action.addresses,
           .port = action.image_port,
           .timeouts = bootstrap_.timeouts,
           .facts =
               [here = HereWith(criu), launch = launch_, ranks = ranks_.Living(),
                closing = ClosingOf(action.sockets)] {
                 return LookAtSource(here, launch, ranks, closing).SerializeAsString();
               },
           .judge = [all](const std::string& findings) -> Result<> {
             XMPI_ASSIGN_OR_RETURN(*all, ReadFindings(findings));
             return {};
           },
           .held = std::move(held),
           .judge_sights =
               [all, files = files_, rules = std::move(rules)](const auto& asked,
                                                               const auto& sights) {
                 FileVerdict verdict = JudgeSights(asked, sights, rules);
                 files->at_target = std::move(verdict.at_target);
                 all->MergeFrom(verdict.findings);
                 return JudgeFindings(*all);
               },
           .lanes = Lanes(),
           .scan = action.precopy && !receiver_ ? Scanner(ranks_.Living(), slot_->proc_fd())
                                                : std::function<Result<std::vector<PageJob>>()>(),
           .precopy = {action.precopy.value_or(std::chrono::milliseconds(0)), action.within},
           .progress =
               [this, connecting = connecting_](const wire::Progress& progress) {
                 if (connecting == connecting_) SendProgress(progress);
               }},
          PostFunction(),
          [this, attempt, connecting = connecting_](Result<wire::Plan> connected) {
            if (connecting != connecting_) return;
            if (Result<> after = FAULT_POINT("prepare.after"); connected && !after)
              connected = std::unexpected(after.error());
            core::SourceConnected answer{attempt};
            if (connected) {
              answer.plan = std::move(*connected);
            } else {
              answer.error = connected.error().message;
            }
            Deliver(std::move(answer));
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

void Proxy::SendProgress(const wire::Progress& progress) {
  wire::Envelope envelope = NewEnvelope();
  *envelope.mutable_progress() = progress;
  Send(envelope);
}

// ---- dump

void Proxy::Perform(core::DumpRanks& action) {
  if (dumping_) {  // withdrawn, and not at its end yet
    next_dump_ = std::move(action);
    return;
  }
  StartDump(action);
}

void Proxy::StartDump(const core::DumpRanks& action) {
  input_.Pause();
  if (Result<> begun = BeginDump(action); !begun)
    return Deliver(core::RanksDumped{.error = begun.error().message});
  if (action.held) return SendHeld();
  dumping_ = true;
  (void)FAULT_POINT("transfer.before");
  DumpRanks(
      ranks_.Living(), WithInput(action.facts), *files_, action.timeout, &checkpointer(),
      [this](image::RankImage image) {
        if (sender_ && !dump_withdrawn_) sender_->Add(std::move(image));
      },
      [this](Result<std::vector<wire::RankImage>> images) { OnDumped(std::move(images)); });
}

Result<> Proxy::BeginDump(const core::DumpRanks& action) {
  XMPI_RETURN_IF_ERROR(FAULT_POINT("dump.before"));
  if (!sender_ || sender_->attempt() != action.candidate_attempt)
    return Fail("there is no image connection");
  return action.held ? Result<>() : CheckParked(HereWith({}), ranks_.Living());
}

// Standard input that the pipe had no room for; the launcher sends no more before the reconnect.
std::vector<wire::RankImage> Proxy::WithInput(std::vector<wire::RankImage> facts) const {
  for (wire::RankImage& image : facts) {
    const bool takes_stdin = std::ranges::any_of(launch_.ranks(), [&](const wire::RankSpec& rank) {
      return rank.rank() == image.rank() && rank.takes_stdin();
    });
    if (!takes_stdin) continue;
    image.set_input(std::string(input_.held()));
    image.set_input_ended(input_.ended());
  }
  return facts;
}

void Proxy::SendHeld() {
  Result<std::vector<HeldImage>> images = HeldImages();
  if (!images) return Deliver(core::RanksDumped{.error = images.error().message});
  Result<std::vector<wire::RankImage>> facts = HeldFacts();
  if (!facts) return Deliver(core::RanksDumped{.error = facts.error().message});
  for (HeldImage& held : *images) {
    // They were made for this node, which may have had files that the next one lacks.
    if (Result<> taken = checkpointer().TakeFiles(files_->at_target, &held.image); !taken)
      return Deliver(core::RanksDumped{.error = taken.error().message});
  }
  for (HeldImage& held : *images) sender_->Add(std::move(held.image));
  sender_->Finish();
  Deliver(core::RanksDumped{.error = {}, .images = std::move(*facts)});
}

void Proxy::OnDumped(Result<std::vector<wire::RankImage>> images) {
  dumping_ = false;
  if (std::exchange(dump_withdrawn_, false)) return OnWithdrawnDumpEnded();
  if (Result<> after = FAULT_POINT("dump.after"); images && !after)
    images = std::unexpected(after.error());
  if (!images) return Deliver(core::RanksDumped{.error = images.error().message});
  if (sender_) sender_->Finish();
  DrainOutput();
  Deliver(core::RanksDumped{.error = {}, .images = std::move(*images)});
}

// The originals are stopped: what is in their pipes now is all that they will ever write here,
// unless they go on in place.
void Proxy::DrainOutput() {
  output_.TellEnds(false);
  output_.DrainAll([this] {
    wire::Envelope envelope = NewEnvelope();
    envelope.mutable_drained()->set_bytes(output_.bytes_sent());
    Send(envelope);
  });
}

void Proxy::WithdrawDump() {
  next_dump_.reset();
  if (!dumping_) return;
  dump_withdrawn_ = true;
  checkpointer_->Cancel();
}

void Proxy::OnWithdrawnDumpEnded() {
  if (std::exchange(continue_when_dumped_, false)) ContinueOriginals();
  if (next_dump_) StartDump(*std::exchange(next_dump_, std::nullopt));
}

void Proxy::Perform(core::ContinueRanks&) {
  ++connecting_;
  sender_.reset();
  WithdrawDump();
  continue_when_dumped_ = dumping_;  // not while CRIU holds them
  if (!dumping_) ContinueOriginals();
}

void Proxy::ContinueOriginals() {
  for (const auto& [rank, process] : ranks_.Living()) {
    if (Result<> continued = checkpointer().Continue(process.pid); !continued)
      log::Error("dump.continue", {{"rank", rank}, {"why", continued.error().message}});
  }
  output_.TellEnds(true);
  input_.Resume();
}

// ---- restore

void Proxy::Perform(core::RestoreRanks& action) {
  ranks_.Forget();
  // Until the launcher says go on, the originals may still be the ones who take input.
  input_.Pause();
  for (const wire::RankImage& image : action.images) {
    if (!image.input().empty() || image.input_ended())
      input_.Feed(image.input(), image.input_ended());
  }
  Result<> before = FAULT_POINT("restore.before");
  if (!before) return OnRestored(std::unexpected(before.error()));
  Result<std::vector<HeldImage>> images = HeldImages();
  if (!images) return OnRestored(std::unexpected(images.error()));
  RestoreFrom(std::move(*images), action.timeout);
}

void Proxy::RestoreFrom(std::vector<HeldImage> images, std::chrono::milliseconds timeout) {
  std::vector<pid_t> pids;
  for (const HeldImage& held : images) {
    const std::vector<pid_t>& used = held.image.manifest.used_pids;
    pids.insert(pids.end(), used.begin(), used.end());
  }
  auto held = std::make_shared<std::vector<HeldImage>>(std::move(images));
  pid_freer_ = FreePids(
      loop_, std::move(pids), slot_.get(), &checkpointer(), [this, held, timeout](Result<> free) {
        if (!free) return OnRestored(std::unexpected(free.error()));
        RestoreRanks(std::move(*held), launch_.bind_to(), timeout, slot_.get(), &checkpointer(),
                     &ranks_, [this](auto places) { OnRestored(std::move(places)); });
      });
}

void Proxy::OnRestored(Result<std::vector<wire::RankPlace>> places) {
  if (Result<> after = FAULT_POINT("restore.after"); places && !after)
    places = std::unexpected(after.error());
  core::RanksRestored restored;
  restored_ = places.has_value();
  if (places) {
    restored.places = std::move(*places);
  } else {
    restored.error = places.error().message;
  }
  Deliver(std::move(restored));
}

// ---- after the commit point

// The ranks here are the ranks: nobody will want their images any more, and what was put on this
// node's disk for them stays. What they lack of their memory is put in while they run.
void Proxy::Commit() {
  receiver_.reset();
  if (!checkpointer_) return;
  checkpointer_->KeepFiles();
  if (!restored_ || std::exchange(filling_, true)) return;
  restored_ = false;
  checkpointer_->FillMemory([this](Result<> filled) { OnFilled(std::move(filled)); });
}

void Proxy::OnFilled(Result<> filled) {
  filling_ = false;
  if (!filled) {
    SendProblem(std::format("{}; its ranks are ended", filled.error().message));
    return ranks_.End(true);
  }
  if (auto connect = std::exchange(connect_when_filled_, std::nullopt)) Perform(*connect);
}

// ---- the phases in which a proxy only passes on what launcher and ranks say

void Proxy::HitPhase(const wire::Envelope& envelope) {
  switch (envelope.body_case()) {
    case wire::Envelope::kNotice:
      return (void)FAULT_POINT("quiesce.before");
    case wire::Envelope::kParked:
      return (void)FAULT_POINT("quiesce.after");
    case wire::Envelope::kContinueRanks:
      return (void)FAULT_POINT("reconnect.before");
    case wire::Envelope::kRunning:
      return (void)FAULT_POINT("reconnect.after");
    default:
      return;
  }
}

}  // namespace xmpi::proxy
