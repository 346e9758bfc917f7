#include "proxy/restore.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <format>
#include <memory>
#include <optional>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "os/namespaces.h"
#include "os/pidfd.h"
#include "preflight/pids.h"
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

  Restore(std::string bind_to, std::chrono::milliseconds timeout, os::Slot* slot,
          criu::Checkpointer* checkpointer, Ranks* ranks, Done done)
      : bind_to_(std::move(bind_to)),
        timeout_(timeout),
        slot_(slot),
        checkpointer_(checkpointer),
        ranks_(ranks),
        done_(std::move(done)) {}

  void Run(std::vector<HeldImage> images) {
    ranks_->HoldExits();
    std::vector<pid_t> reserved;
    for (const HeldImage& held : images) {
      const std::vector<pid_t>& pids = held.image.manifest.used_pids;
      reserved.insert(reserved.end(), pids.begin(), pids.end());
    }
    outstanding_ = 1;
    for (HeldImage& held : images) {
      if (Result<> begun = Begin(std::move(held), reserved); !begun) Fail(begun.error());
    }
    Settle();
  }

 private:
  Result<> Begin(HeldImage held, const std::vector<pid_t>& reserved) {
    bool takes_stdin = false;
    for (const image::ManifestTie& tie : held.image.manifest.ties)
      takes_stdin |= tie.kind == image::TieKind::kStdin;
    XMPI_ASSIGN_OR_RETURN(std::vector<TieEnds> ties, MakeTies(takes_stdin));
    const RankId rank = held.image.manifest.rank;
    criu::RestoreRequest request{.image = std::move(held.image),
                                 .pages = std::move(held.pages),
                                 .ties = {},
                                 .reserved_pids = reserved,
                                 .timeout = timeout_};
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
        self->ranks_->ForgetExitsOf(adopted->pid);
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
  const std::chrono::milliseconds timeout_;
  os::Slot* slot_;
  criu::Checkpointer* checkpointer_;
  Ranks* ranks_;
  Done done_;
  std::vector<Copy> copies_;
  std::optional<Error> failure_;
  std::size_t outstanding_ = 0;
};

// Killed processes are reaped by the slot's init, which tells of them one by one; that a number is
// free is seen in the slot's /proc.
class PidFreer : public std::enable_shared_from_this<PidFreer> {
 public:
  PidFreer(asio::io_context& loop, std::vector<pid_t> pids, os::Slot* slot,
           criu::Checkpointer* checkpointer, std::function<void(Result<>)> done)
      : pids_(std::move(pids)),
        slot_(slot),
        checkpointer_(checkpointer),
        done_(std::move(done)),
        timer_(loop) {}

  void Run() {
    std::erase_if(pids_, [this](pid_t pid) {
      const std::string name = std::to_string(pid);
      if (faccessat(slot_->proc_fd(), name.c_str(), F_OK, 0) != 0) return true;
      // Without a namespace of its own the slot shares its PIDs with strangers.
      if (slot_->has_namespaces()) (void)checkpointer_->Kill(pid);
      return false;
    });
    if (pids_.empty()) return done_({});
    if (std::chrono::steady_clock::now() > deadline_) return done_(InUse());
    timer_.expires_after(limits::kPidsFreePoll);
    timer_.async_wait([weak = weak_from_this()](const asio::error_code& error) {
      const auto self = weak.lock();
      if (self && !error) self->Run();
    });
  }

 private:
  std::unexpected<Error> InUse() const {
    const auto first = static_cast<std::uint32_t>(pids_.front());
    if (slot_->has_namespaces())
      return Fail(std::format("PID {} of the slot is still in use", first));
    const auto uses = preflight::PidsInUse(std::array{first});
    return Fail(uses.empty() ? std::format("PID {} is in use", first)
                             : preflight::Describe(uses.front()));
  }

  std::vector<pid_t> pids_;
  os::Slot* slot_;
  criu::Checkpointer* checkpointer_;
  std::function<void(Result<>)> done_;
  asio::steady_timer timer_;
  const std::chrono::steady_clock::time_point deadline_ =
      std::chrono::steady_clock::now() + limits::kPidsFree;
};

}  // namespace

std::shared_ptr<void> FreePids(asio::io_context& loop, std::vector<pid_t> pids, os::Slot* slot,
                               criu::Checkpointer* checkpointer,
                               std::function<void(Result<>)> done) {
  const auto freer =
      std::make_shared<PidFreer>(loop, std::move(pids), slot, checkpointer, std::move(done));
  freer->Run();
  return freer;
}

void RestoreRanks(std::vector<HeldImage> images, const std::string& bind_to,
                  std::chrono::milliseconds timeout, os::Slot* slot,
                  criu::Checkpointer* checkpointer, Ranks* ranks,
                  std::function<void(Result<std::vector<wire::RankPlace>>)> done) {
  std::make_shared<Restore>(bind_to, timeout, slot, checkpointer, ranks, std::move(done))
      ->Run(std::move(images));
}

}  // namespace xmpi::proxy
