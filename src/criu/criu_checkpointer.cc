#include "criu/criu_checkpointer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <format>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "criu/carried_files.h"
#include "criu/criu_log.h"
#include "criu/criu_request.h"
#include "criu/eager_pages.h"
#include "criu/fills.h"
#include "criu/held_files.h"
#include "criu/image_edit.h"
#include "criu/page_sink.h"
#include "criu/process_tree.h"
#include "criu/swrk.h"
#include "criu/ties.h"
#include "criu/unprivileged.h"
#include "image/process_memory.h"
#include "image/source.h"
#include "os/namespaces.h"
#include "os/pidfd.h"

namespace xmpi::criu {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::duration_cast;
using std::chrono::microseconds;

constexpr std::size_t kLogTailBytes = 64u << 10;
constexpr int kMaxParallel = 8;
constexpr pid_t kPidsForCriu = 2000;  // what criu and its helpers may take, with room to spare

// The cause as CRIU tells it: the answer's message is its first error line, the log has more.
std::string Cause(const Result<rpc::criu_resp>& answer, const std::string& log) {
  std::string lines = ErrorLines(log);
  if (!answer) {
    return lines.empty() ? answer.error().message
                         : std::format("{}; CRIU says: {}", answer.error().message, lines);
  }
  if (lines.empty() && answer->has_cr_errmsg()) lines = ErrorLines(answer->cr_errmsg());
  if (lines.empty()) lines = std::format("no error line, errno {}", answer->cr_errno());
  return "CRIU says: " + lines;
}

const char* ToString(ProcessState state) {
  switch (state) {
    case ProcessState::kRunning:
      return "the rank still runs here";
    case ProcessState::kStopped:
      return "the rank is stopped here and can go on";
    case ProcessState::kGone:
      break;
  }
  return "the rank is gone";
}

// What to do once the criu process is there; runs in a worker thread and gives the closure that
// then runs on the proxy's thread.
using Work = std::function<std::function<void()>(Result<Swrk>)>;

pid_t PidMax() {
  const int max = std::atoi(ReadFileAt(AT_FDCWD, "/proc/sys/kernel/pid_max").c_str());
  return max > 0 ? max : 32768;
}

}  // namespace

struct CriuCheckpointer::Shared : std::enable_shared_from_this<Shared> {
  struct Job {
    Fd directory;
    std::vector<os::SpawnFd> inherited;
    pid_t after_pid = 0;
    Work work;
    std::uint64_t cancels = 0;  // how many cancels it has outlived by being asked for later
  };

  void Enqueue(Job job) {
    job.cancels = cancels;
    queue.push_back(std::move(job));
    Pump();
  }

  void Pump() {
    while (running < max_parallel && !queue.empty()) {
      Job job = std::move(queue.front());
      queue.pop_front();
      ++running;
      Start(std::move(job));
    }
  }

  void Start(Job job) {
    if (job.cancels != cancels) return RunWork(std::move(job.work), Cancelled());
    auto swrk = std::make_shared<Swrk>();
    auto theirs = std::make_shared<Fd>();
    swrk->directory = std::move(job.directory);
    Result<os::SpawnRequest> request = PrepareSwrk(options.criu, swrk.get(), theirs.get());
    if (!request) return RunWork(std::move(job.work), std::unexpected(request.error()));
    request->fds.insert(request->fds.end(), job.inherited.begin(), job.inherited.end());
    request->after_pid = job.after_pid;
    slot->Spawn(*request, [weak = weak_from_this(), swrk, theirs, cancels = job.cancels,
                           work = std::move(job.work)](Result<os::Spawned> spawned) mutable {
      const auto self = weak.lock();
      theirs->Close();
      if (!self) return;
      if (!spawned) {
        Error error = std::move(spawned.error());
        error.message += "; install the package criu, version 4.0 or later";
        return self->RunWork(std::move(work), std::unexpected(std::move(error)));
      }
      swrk->pidfd = std::move(spawned->pidfd);
      if (cancels != self->cancels) {
        os::PidfdSendSignal(swrk->pidfd.get(), SIGKILL);
        return self->RunWork(std::move(work), Cancelled());
      }
      self->RunWork(std::move(work), std::move(*swrk));
    });
  }

  // A slot has namespaces where xmpi-proxy has privilege, and then criu has it, too.
  CriuMode mode() const { return {options.log_level, !slot->has_namespaces()}; }

  void RunWork(Work work, Result<Swrk> swrk) {
    const std::uint64_t id = next_id++;
    if (swrk) handles[id] = Fd(fcntl(swrk->pidfd.get(), F_DUPFD_CLOEXEC, 3));
    threads[id] = std::jthread([weak = weak_from_this(), post = post, id, work = std::move(work),
                                swrk = std::move(swrk)]() mutable {
      std::function<void()> done = work(std::move(swrk));
      post([weak, id, done = std::move(done)] {
        const auto self = weak.lock();
        if (!self) return;
        self->threads.erase(id);  // joins: the thread has nothing left to do but to end
        self->handles.erase(id);
        --self->running;
        self->Pump();
        done();
      });
    });
  }

  // Whether the rank is to run before it has its memory; if so, its fill has begun.
  bool WantsLazy(const RestoreRequest& request, std::optional<Error>* failed);

  static std::unexpected<Error> Cancelled() { return Fail("it was cancelled"); }

  void Cancel() {
    ++cancels;
    for (const auto& [id, pidfd] : handles) os::PidfdSendSignal(pidfd.get(), SIGKILL);
  }

  os::Slot* slot = nullptr;
  std::shared_ptr<CarriedFiles> files;
  std::shared_ptr<Fills> fills;
  std::optional<std::string> why_eager;  // known after a check, or when it matters
  Post post;
  Options options;
  int max_parallel = 1;
  int running = 0;
  std::uint64_t cancels = 0;
  std::deque<Job> queue;
  std::uint64_t next_id = 0;
  std::map<std::uint64_t, std::jthread> threads;
  std::map<std::uint64_t, Fd> handles;
};

namespace {

// ---- Check

// Why ranks cannot run before they have their memory; empty: they can.
std::string WhyEager(bool wanted, bool unprivileged, bool criu_can) {
  if (!wanted) return "it is switched off";
  if (unprivileged) return "it takes privilege";
  if (!criu_can) return "CRIU does not find lazy pages in this kernel";
  const Result<> available = PageFill::Available();
  return available ? "" : available.error().message;
}

Result<Preflight> RunCheck(bool lazy, Result<Swrk> swrk, bool unprivileged) {
  if (!swrk) return std::unexpected(swrk.error());
  const auto deadline = Clock::now() + limits::kCriuCheck;
  XMPI_ASSIGN_OR_RETURN(rpc::criu_resp version, Exchange(*swrk, VersionMessage(), deadline));
  Preflight preflight;
  preflight.unprivileged = unprivileged;
  const auto& number = version.version();
  preflight.version =
      std::format("{}.{}.{}", number.major_number(), number.minor_number(), number.sublevel());
  if (number.major_number() < 4) {
    return Fail(ErrorCode::kRefused,
                std::format("CRIU {} is too old; 4.0 or later is needed", preflight.version));
  }
  if (unprivileged) {  // who may not ask for features
    XMPI_RETURN_IF_ERROR(CheckUnprivileged(*swrk, deadline));
    preflight.why_eager = WhyEager(lazy, true, false);
    return preflight;
  }
  XMPI_ASSIGN_OR_RETURN(rpc::criu_resp features, Exchange(*swrk, FeatureMessage(), deadline));
  if (!features.success()) {
    return Fail(ErrorCode::kRefused,
                std::format("CRIU {} does not find what it needs in this kernel; `criu check` as "
                            "root says what",
                            preflight.version));
  }
  preflight.why_eager = WhyEager(lazy, false, features.features().lazy_pages());
  return preflight;
}

// ---- Dump

struct DumpWork {
  DumpRequest request;
  std::shared_ptr<CarriedFiles> files;
  std::shared_ptr<PageSink> sink;
  int proc_fd = -1;
  CriuMode mode;
  std::uint64_t ghost_limit_bytes = 0;

  Result<image::RankImage> Run(Swrk swrk, DumpDone* done) const {
    const std::vector<Process> tree = ReadTree(proc_fd, request.pid);
    if (tree.empty()) return Fail("it is gone");
    const std::vector<OpenFd> fds = ReadFds(proc_fd, tree);
    std::vector<image::ManifestTie> ties = FindTies(fds, request.ties);
    const rpc::criu_req message = DumpMessage(request.pid, ties, mode, ghost_limit_bytes);
    sink->Begin(swrk.directory.get());
    const Result<rpc::criu_resp> answer = Exchange(swrk, message, Clock::now() + request.timeout);
    Result<std::vector<image::TaskMemory>> memory = sink->Finish();
    const std::string log = ReadFileAt(swrk.directory.get(), kDumpLog);
    done->log = LogTail(log, kLogTailBytes);
    if (!answer || !answer->success() || !memory) {
      AwaitEnd(swrk);  // only with criu's end is nobody traced any more
      WaitSettled(proc_fd, request.pid, false, limits::kDumpSettles);
      return Fail(DumpCause(answer, log, memory));
    }
    if (!WaitSettled(proc_fd, request.pid, true, limits::kDumpSettles)) {
      return Fail("CRIU dumped it, but it did not stay stopped");
    }
    // Only now is every reader of the pipes stopped.
    XMPI_RETURN_IF_ERROR(CaptureUnread(proc_fd, fds, &ties));
    image::RankImage image;
    image.manifest.rank = request.rank;
    image.manifest.pid = request.pid;
    image.manifest.used_pids = UsedPids(tree);
    image.manifest.ties = std::move(ties);
    image.manifest.memory = std::move(*memory);
    image.pages = std::make_shared<image::ProcessMemory>(proc_fd);
    XMPI_RETURN_IF_ERROR(CarryFiles(tree, swrk.directory.get(), &image));
    XMPI_ASSIGN_OR_RETURN(std::vector<image::ManifestFile> dumped,
                          image::ListImageFiles(swrk.directory));
    image.manifest.files.insert(image.manifest.files.end(), dumped.begin(), dumped.end());
    image.directory = std::move(swrk.directory);
    return image;
  }

  // That pages did not come whole is mostly what follows when criu fails, but not always.
  static std::string DumpCause(const Result<rpc::criu_resp>& answer, const std::string& log,
                               const Result<std::vector<image::TaskMemory>>& memory) {
    const bool whole = answer && answer->success();
    if (!memory && (whole || memory.error().code != ErrorCode::kUnreachable))
      return memory.error().message + (whole ? "" : "; " + Cause(answer, log));
    return Cause(answer, log);
  }

  // Now that the rank is stopped: what it holds by name, and the content of what travels.
  Result<> CarryFiles(const std::vector<Process>& tree, int directory,
                      image::RankImage* image) const {
    if (const std::string shared = SharedDeletedFile(proc_fd, tree); !shared.empty())
      return Fail("it holds " + shared + ", and after the move there would be two of it");
    std::set<std::string> paths;
    for (Held& held : ReadHeldFiles(proc_fd, request.rank, tree)) {
      if (held.file.use == image::FileUse::kFolder || held.file.use == image::FileUse::kDeleted)
        continue;
      paths.insert(held.file.path);
      XMPI_RETURN_IF_ERROR(Carry(std::move(held), image));
    }
    return EditFileImages(directory, request.rank, paths);
  }

  Result<> Carry(Held held, image::RankImage* image) const {
    image::HeldFile& file = held.file;
    const bool stays = file.shared || request.files_at_target.contains(file.path);
    if (stays && file.locked)
      return Fail(
          std::format("it holds a file lock on {}, which its copy could not take while it has it; "
                      "the program must release it before XMPI_Quiesce",
                      file.path));
    if (!stays && !request.carry_files && !file.memory)
      return Fail(
          std::format("it has {} open, which is on this node's own disk ({}), and "
                      "-no-carry-files forbids to take it along",
                      file.path, file.file_system));
    if (!stays) {
      Fd content(openat(proc_fd, held.link.c_str(), O_RDONLY | O_CLOEXEC));
      if (!content)
        return std::unexpected(ErrnoError(std::format("read {}, which it has open", file.path)));
      file.content = std::format("held-{}", image->elsewhere.size());
      file.earlier = files->Earlier(file.path);
      image->manifest.files.push_back({file.content, file.state.size, {}});
      image->elsewhere.emplace(file.content, std::move(content));
    }
    image->manifest.held.push_back(std::move(file));
    return {};
  }

  DumpDone operator()(Result<Swrk> swrk) const {
    const auto begin = Clock::now();
    DumpDone done{.rank = request.rank, .image = Fail("not done"), .log = {}};
    done.image = swrk ? Run(std::move(*swrk), &done) : std::unexpected(swrk.error());
    done.took = duration_cast<microseconds>(Clock::now() - begin);
    done.original = StateOf(proc_fd, request.pid);
    if (!done.image) {
      done.image.error().message =
          std::format("cannot dump rank {} (PID {} in its slot): {}; {}", request.rank, request.pid,
                      done.image.error().message, ToString(done.original));
    }
    return done;
  }
};

// ---- Restore

using Inherited = std::vector<std::pair<image::ManifestTie, int>>;

// Pairs each tie of the image with a number for its new descriptor in the criu process.
Result<Inherited> PairTies(const RestoreRequest& request, std::vector<os::SpawnFd>* spawn_fds) {
  Inherited inherited;
  int number = kSwrkFirstInheritFd;
  for (const image::ManifestTie& tie : request.image.manifest.ties) {
    const auto made = std::find_if(request.ties.begin(), request.ties.end(),
                                   [&](const NewTie& new_tie) { return new_tie.kind == tie.kind; });
    if (made == request.ties.end()) {
      return Fail(
          std::format("nothing was given to take the place of its {}", image::ToString(tie.kind)));
    }
    if (tie.is_pipe) XMPI_RETURN_IF_ERROR(FillPipe(made->fd, tie.unread));
    spawn_fds->push_back({.target = number, .fd = made->fd});
    inherited.emplace_back(tie, number++);
  }
  return inherited;
}

Result<pid_t> RunRestore(const Swrk& swrk, const Inherited& inherited, const CriuMode& mode,
                         std::chrono::milliseconds timeout, bool lazy, std::string* log_tail) {
  const Result<rpc::criu_resp> answer =
      Exchange(swrk, RestoreMessage(inherited, lazy, mode), Clock::now() + timeout);
  const std::string log = ReadFileAt(swrk.directory.get(), kRestoreLog);
  *log_tail = LogTail(log, kLogTailBytes);
  if (!answer || !answer->success()) return Fail(Cause(answer, log));
  return answer->restore().pid();
}

Result<Fd> Duplicate(const Fd& fd) {
  Fd copy(fcntl(fd.get(), F_DUPFD_CLOEXEC, 3));
  if (!copy) return std::unexpected(ErrnoError("dup"));
  return copy;
}

}  // namespace

bool CriuCheckpointer::Shared::WantsLazy(const RestoreRequest& request,
                                         std::optional<Error>* failed) {
  if (request.image.manifest.memory.empty()) return false;
  if (!request.pages) {
    *failed = Error{ErrorCode::kFailed, "its memory was not given along"};
    return false;
  }
  if (!why_eager) why_eager = WhyEager(options.lazy, mode().unprivileged, true);
  if (!why_eager->empty()) {
    log::Info("restore.eager", {{"rank", request.image.manifest.rank}, {"why", *why_eager}});
    return false;
  }
  const Result<> begun = fills->Begin(request.image, request.pages);
  if (!begun) *failed = begun.error();
  return begun.has_value();
}

CriuCheckpointer::CriuCheckpointer(os::Slot* slot, Post post, Options options)
    : shared_(std::make_shared<Shared>()) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  shared_->slot = slot;
  const char* root = slot->has_namespaces() ? "1/root" : "/";
  shared_->files = std::make_shared<CarriedFiles>(
      Fd(openat(slot->proc_fd(), root, O_PATH | O_DIRECTORY | O_CLOEXEC)));
  shared_->fills = std::make_shared<Fills>(slot, post);
  shared_->post = std::move(post);
  shared_->max_parallel =
      options.max_parallel > 0 ? options.max_parallel : std::clamp(cores, 1, kMaxParallel);
  shared_->options = std::move(options);
}

CriuCheckpointer::~CriuCheckpointer() {
  shared_->queue.clear();
  shared_->Cancel();
  shared_->threads.clear();  // joins
}

std::vector<image::HeldFile> CriuCheckpointer::HeldFiles(RankId rank, pid_t pid) {
  const int proc_fd = shared_->slot->proc_fd();
  std::vector<image::HeldFile> files;
  for (Held& held : ReadHeldFiles(proc_fd, rank, ReadTree(proc_fd, pid))) {
    files.push_back(std::move(held.file));
    files.back().earlier = shared_->files->Earlier(files.back().path);
  }
  return files;
}

image::LookAt CriuCheckpointer::Looker() {
  return [files = shared_->files](const std::vector<image::HeldFile>& held) {
    return files->Look(held);
  };
}

Result<> CriuCheckpointer::TakeFiles(const std::set<std::string>& files_at_target,
                                     image::RankImage* image) {
  return shared_->files->Take(files_at_target, image);
}

void CriuCheckpointer::KeepFiles() { shared_->files->Keep(); }

void CriuCheckpointer::Cancel() { shared_->Cancel(); }

void CriuCheckpointer::Check(std::function<void(Result<Preflight>)> done) {
  Shared::Job job;
  const bool unprivileged = shared_->mode().unprivileged;
  std::optional<Error> failed;
  if (unprivileged) {  // such as a dump will want, too
    Result<Fd> directory = os::MakeMemoryDirectory(0);
    if (!directory) failed = directory.error();
    if (directory) job.directory = std::move(*directory);
  }
  job.work = [=, weak = std::weak_ptr(shared_), lazy = shared_->options.lazy,
              done = std::move(done)](Result<Swrk> swrk) -> std::function<void()> {
    if (failed) swrk = std::unexpected(*failed);
    auto result =
        std::make_shared<Result<Preflight>>(RunCheck(lazy, std::move(swrk), unprivileged));
    return [weak, done, result] {
      const auto shared = weak.lock();
      if (shared && *result) shared->why_eager = (*result)->why_eager;
      done(std::move(*result));
    };
  };
  shared_->Enqueue(std::move(job));
}

void CriuCheckpointer::Dump(DumpRequest request, std::function<void(DumpDone)> done) {
  Shared::Job job;
  Result<Fd> directory = os::MakeMemoryDirectory(request.image_limit_bytes);
  Result<std::shared_ptr<PageSink>> sink = PageSink::Make();
  std::optional<Error> failed;
  if (shared_->fills->Has(request.rank))
    failed = Error{ErrorCode::kRefused, "it has not yet got all its memory since its last move"};
  if (!directory) failed = directory.error();
  if (!sink) failed = sink.error();
  if (!failed) {
    job.directory = std::move(*directory);
    job.inherited = {{.target = kSwrkPagesFd, .fd = (*sink)->criu_end()}};
  }
  const DumpWork work{std::move(request),     shared_->files,
                      sink.value_or(nullptr), shared_->slot->proc_fd(),
                      shared_->mode(),        shared_->options.ghost_limit_bytes};
  job.work = [work, failed, done = std::move(done)](Result<Swrk> swrk) -> std::function<void()> {
    if (failed) swrk = std::unexpected(*failed);
    auto result = std::make_shared<DumpDone>(work(std::move(swrk)));
    return [done, result] { done(std::move(*result)); };
  };
  shared_->Enqueue(std::move(job));
}

void CriuCheckpointer::Restore(RestoreRequest request, std::function<void(RestoreDone)> done) {
  Shared::Job job;
  Result<Inherited> inherited = PairTies(request, &job.inherited);
  Result<Fd> directory = Duplicate(request.image.directory);
  std::optional<Error> failed;
  if (!inherited) failed = inherited.error();
  if (!directory) failed = directory.error();
  const bool lazy = !failed && shared_->WantsLazy(request, &failed);
  if (!failed) job.directory = std::move(*directory);
  std::vector<pid_t> used = request.reserved_pids;
  const std::vector<pid_t>& own = request.image.manifest.used_pids;
  used.insert(used.end(), own.begin(), own.end());
  job.after_pid = os::PidsFreeAfter(used, kPidsForCriu, PidMax());

  const CriuMode mode = shared_->mode();
  const auto timeout = request.timeout;
  auto result = std::make_shared<RestoreDone>(RestoreDone{
      .rank = request.image.manifest.rank, .pid = 0, .image = std::move(request.image), .log = {}});
  job.work = [=, weak = std::weak_ptr(shared_), pages = std::move(request.pages),
              files = shared_->files, inherited = inherited.value_or(Inherited{}),
              done = std::move(done)](Result<Swrk> swrk) -> std::function<void()> {
    const auto begin = Clock::now();
    if (failed) swrk = std::unexpected(*failed);
    if (Result<> put = files->Put(result->image); swrk && !put) swrk = std::unexpected(put.error());
    Result<std::unique_ptr<EagerPages>> eager;
    if (swrk && !lazy && pages) {
      eager = EagerPages::Put(swrk->directory, result->image.manifest.memory, *pages);
      if (!eager) swrk = std::unexpected(eager.error());
    }
    result->pid = swrk ? RunRestore(*swrk, inherited, mode, timeout, lazy, &result->log)
                       : Result<pid_t>(std::unexpected(swrk.error()));
    result->took = duration_cast<microseconds>(Clock::now() - begin);
    if (!result->pid) {
      result->pid.error().message =
          std::format("cannot restore rank {} (PID {} in its slot): {}", result->rank,
                      result->image.manifest.pid, result->pid.error().message);
    }
    return [weak, done, result] {
      const auto shared = weak.lock();
      if (shared && !result->pid) shared->fills->Drop(result->rank);
      done(std::move(*result));
    };
  };
  shared_->Enqueue(std::move(job));
}

void CriuCheckpointer::FillMemory(std::function<void(Result<>)> done) {
  shared_->fills->FillMemory(std::move(done));
}

FillProgress CriuCheckpointer::Filled() const { return shared_->fills->progress(); }

ProcessState CriuCheckpointer::State(pid_t pid) { return StateOf(shared_->slot->proc_fd(), pid); }

Result<> CriuCheckpointer::Continue(pid_t pid) {
  return SignalTree(shared_->slot->proc_fd(), pid, SIGCONT, true);
}

Result<> CriuCheckpointer::Kill(pid_t pid) {
  return SignalTree(shared_->slot->proc_fd(), pid, SIGKILL, false);
}

}  // namespace xmpi::criu
