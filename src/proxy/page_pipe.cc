#include "proxy/page_pipe.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "image/source.h"

namespace xmpi::proxy {
std::uint64_t BytesOf(const PageJob& job) {
  std::uint64_t pages = 0;
  for (const image::PageRun& run : job.runs) pages += run.pages;
  return pages * image::kPageBytes;
}

struct PagePipe::Lane {
  image::PageLane* known = nullptr;
  StopSignal stop;
  std::optional<os::TlsSocket> socket;
};

// What the lanes do together, and what came of it.
struct PagePipe::Work {
  std::span<const PageJob> jobs;
  const Manner& manner;
  std::mutex mutex{};
  std::condition_variable changed{};
  std::size_t busy = 0;
  image::PassStats stats{};
  std::optional<Error> failure{};
  std::atomic<bool> called_off = false;
};

PagePipe::PagePipe(const os::TlsContext& tls, Options options)
    : tls_(tls), options_(std::move(options)) {
  for (unsigned number = 1; number <= options_.lanes; ++number) {
    known_.push_back(std::make_unique<image::PageLane>(number, options_.lanes));
    lanes_.push_back(std::make_unique<Lane>());
    lanes_.back()->known = known_.back().get();
  }
}

PagePipe::~PagePipe() = default;

void PagePipe::Stop() {
  for (const auto& lane : lanes_) lane->stop.Stop();
}

Result<image::PassStats> PagePipe::Pass(std::span<const PageJob> jobs, const Manner& manner) {
  Work work{jobs, manner};
  work.busy = lanes_.size();
  std::vector<std::jthread> threads;
  for (const auto& lane : lanes_)
    threads.emplace_back([this, &work, &lane] { RunLane(*lane, work); });
  std::unique_lock lock(work.mutex);
  while (!work.changed.wait_for(lock, limits::kImagePulse, [&] { return work.busy == 0; })) {
    lock.unlock();
    const Result<> going_on = manner.pulse ? manner.pulse() : Result<>();
    lock.lock();
    if (going_on) continue;
    if (!work.failure) work.failure = going_on.error();
    work.called_off = true;
  }
  lock.unlock();
  threads.clear();  // joins
  if (work.failure) return std::unexpected(*work.failure);
  return work.stats;
}

void PagePipe::RunLane(Lane& lane, Work& work) {
  if (work.manner.nice != 0) setpriority(PRIO_PROCESS, gettid(), work.manner.nice);
  const Result<> sent = SendJobs(lane, work);
  std::unique_lock lock(work.mutex);
  if (!sent) {
    if (!work.failure) work.failure = sent.error();
    work.called_off = true;
  }
  --work.busy;
  work.changed.notify_all();
  // The candidate would take a lane that has done its part for lost.
  while (!work.changed.wait_for(lock, limits::kImagePulse, [&] { return work.busy == 0; })) {
    lock.unlock();
    if (lane.socket && !image::SendWait(WriteTo(&*lane.socket))) lane.socket.reset();
    lock.lock();
  }
}

Result<> PagePipe::SendJobs(Lane& lane, Work& work) {
  Result<> sent;
  for (int tries = 0; tries <= kRedials; ++tries) {
    sent = SendOnce(lane, work);
    if (sent || !IsWorthAnother(sent.error())) return sent;
    log::Warn("transfer.lane", {{"lane", lane.known->lane()}, {"why", sent.error().message}});
    lane.socket.reset();
  }
  return sent;
}

Result<> PagePipe::SendOnce(Lane& lane, Work& work) {
  if (!lane.socket) XMPI_RETURN_IF_ERROR(Connect(lane));
  const StopSignal::Scope scope(&lane.stop, &*lane.socket);
  image::PassStats stats;
  for (const PageJob& job : work.jobs) {
    const image::Pace pace = [&](std::size_t bytes) -> Result<> {
      if (work.called_off) return Fail(ErrorCode::kRefused, "the transfer was called off");
      if (work.manner.looked) work.manner.looked(job.rank, bytes);
      return work.manner.pace ? work.manner.pace->Take(bytes, lane.stop) : Result<>();
    };
    XMPI_ASSIGN_OR_RETURN(
        const image::PassStats part,
        lane.known->Send(job.rank, job.pid, *job.source, job.runs, WriteTo(&*lane.socket), pace));
    stats += part;
  }
  XMPI_RETURN_IF_ERROR(lane.known->Confirm(ReadFrom(&*lane.socket), WriteTo(&*lane.socket)));
  const std::lock_guard lock(work.mutex);
  work.stats += stats;
  return {};
}

Result<> PagePipe::Connect(Lane& lane) {
  XMPI_ASSIGN_OR_RETURN(os::TlsSocket socket, DialImagePort(tls_, options_.addresses, options_.port,
                                                            options_.timeouts, lane.stop));
  lane.socket.emplace(std::move(socket));
  const StopSignal::Scope scope(&lane.stop, &*lane.socket);
  XMPI_RETURN_IF_ERROR(image::SendBegin(WriteTo(&*lane.socket),
                                        {.stream = options_.stream,
                                         .lane = static_cast<std::uint16_t>(lane.known->lane()),
                                         .lanes = static_cast<std::uint16_t>(options_.lanes)}));
  XMPI_ASSIGN_OR_RETURN(const std::uint64_t accepted,
                        image::ReceiveAccepted(ReadFrom(&*lane.socket)));
  return lane.known->OnConnected(accepted);
}

void PagePipe::Pulse() {
  for (const auto& lane : lanes_) {
    if (lane->socket && !image::SendWait(WriteTo(&*lane->socket))) lane->socket.reset();
  }
}

std::optional<image::Hash128> PagePipe::Digest(RankId rank, pid_t pid,
                                               std::span<const image::PageRun> runs) const {
  return image::DigestOf(known_, rank, pid, runs);
}

}  // namespace xmpi::proxy
