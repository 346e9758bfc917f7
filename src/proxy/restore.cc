#include "proxy/restore.h"

#include <csignal>
#include <memory>
#include <optional>
#include <utility>

#include "base/log.h"
#include "os/namespaces.h"
#include "os/pidfd.h"
#include "proxy/cores.h"
#include "proxy/ties.h"

namespace xmpi::proxy {
namespace {

struct Copy {
  RankId rank = 0;
  std::vector<TieEnds> ties{};
  std::optional<os::Spawned> process{};
};

class Restore : public std::enable_shared_from_this<Restore> {
 public:
  using Done = std::function<void(Result<std::vector<wire::RankPlace>>)>;

  Restore(std::string bind_to, os::Slot* slot, criu::Checkpointer* checkpointer, Ranks* ranks,
          Done done)
      : bind_to_(std::move(bind_to)),
        slot_(slot),
        checkpointer_(checkpointer),
        ranks_(ranks),
        done_(std::move(done)) {}

  void Run(std::vector<image::RankImage> images) {
    ranks_->HoldExits();
    std::vector<pid_t> reserved;
    for (const image::RankImage& image : images) {
      const std::vector<pid_t>& pids = image.manifest.used_pids;
      reserved.insert(reserved.end(), pids.begin(), pids.end());
    }
    outstanding_ = 1;
    for (image::RankImage& image : images) {
      if (Result<> begun = Begin(std::move(image), reserved); !begun) Fail(begun.error());
    }
    Settle();
  }

 private:
  Result<> Begin(image::RankImage image, const std::vector<pid_t>& reserved) {
    bool takes_stdin = false;
    for (const image::ManifestTie& tie : image.manifest.ties)
      takes_stdin |= tie.kind == image::TieKind::kStdin;
    XMPI_ASSIGN_OR_RETURN(std::vector<TieEnds> ties, MakeTies(takes_stdin));
    const RankId rank = image.manifest.rank;
    criu::RestoreRequest request{.image = std::move(image), .ties = {}, .reserved_pids = reserved};
    for (const TieEnds& tie : ties) request.ties.push_back({tie.kind, tie.theirs.get()});
    ++outstanding_;
    const std::size_t index = copies_.size();
    copies_.push_back({rank, std::move(ties)});
    checkpointer_->Restore(std::move(request),
                           [self = shared_from_this(), index](criu::RestoreDone restored) {
                             self->OnRestored(index, std::move(restored));
                           });
    return {};
  }

  void OnRestored(std::size_t index, criu::RestoreDone restored) {
    // Only the rank may hold its ends from now on, or their closing would never be seen.
    for (TieEnds& tie : copies_[index].ties) tie.theirs.Close();
    if (!restored.pid) {
      Fail(restored.pid.error());
      return Settle();
    }
    const auto self = shared_from_this();
    slot_->Adopt(*restored.pid, [self, index](Result<os::Spawned>&& adopted) {
      if (adopted) {
        self->copies_[index].process = std::move(*adopted);
      } else {
        self->Fail(WithContext("a rank ended as soon as it was restored", adopted.error()));
      }
      self->Settle();
    });
  }

  void Fail(Error error) {
    if (!failure_) failure_ = std::move(error);
  }

  void Settle() {
    if (--outstanding_ > 0) return;
    if (!failure_) Bind();
    failure_ ? GiveUp() : Finish();
  }

  void Bind() {
    Result<CoreChoice> cores = ChooseCoresHere(bind_to_, copies_.size());
    if (!cores) return Fail(cores.error());
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      const CpuList& cpus = cores->cpus[i];
      Result<> bound = os::BindProcess(copies_[i].process->host_pid, cpus);
      if (!bound)
        log::Warn("restore.bind", {{"rank", copies_[i].rank}, {"why", bound.error().message}});
    }
  }

  void GiveUp() {
    for (const Copy& copy : copies_) {
      if (copy.process) (void)checkpointer_->Kill(copy.process->pid);
    }
    ranks_->ForgetExits();
    done_(std::unexpected(*failure_));
  }

  void Finish() {
    std::vector<wire::RankPlace> places;
    for (Copy& copy : copies_) {
      wire::RankPlace& place = places.emplace_back();
      place.set_rank(copy.rank);
      place.set_pid(static_cast<std::uint32_t>(copy.process->host_pid));
      place.set_namespace_pid(static_cast<std::uint32_t>(copy.process->pid));
      ranks_->Add(copy.rank, std::move(*copy.process), std::move(copy.ties));
    }
    done_(std::move(places));
    ranks_->ReleaseExits();
  }

  const std::string bind_to_;
  os::Slot* slot_;
  criu::Checkpointer* checkpointer_;
  Ranks* ranks_;
  Done done_;
  std::vector<Copy> copies_;
  std::optional<Error> failure_;
  std::size_t outstanding_ = 0;
};

}  // namespace

void RestoreRanks(std::vector<image::RankImage> images, const std::string& bind_to, os::Slot* slot,
                  criu::Checkpointer* checkpointer, Ranks* ranks,
                  std::function<void(Result<std::vector<wire::RankPlace>>)> done) {
  std::make_shared<Restore>(bind_to, slot, checkpointer, ranks, std::move(done))
      ->Run(std::move(images));
}

}  // namespace xmpi::proxy
