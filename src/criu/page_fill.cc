#include "criu/page_fill.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <format>
#include <string>
#include <string_view>

#include "base/limits.h"
#include "base/log.h"
#include "os/slot_protocol.h"

namespace xmpi::criu {
namespace {

using image::kPageBytes;
using image::kRegionBytes;
using Clock = std::chrono::steady_clock;

// CRIU's protocol for a process that serves lazy pages, as version 4.1.1 speaks it: it connects to
// this name in its images directory; per process a PID and then the userfaultfd, less than zero and
// nothing for a zombie; at the end a mark.
constexpr const char* kSocketName = "lazy-pages.socket";
constexpr std::int32_t kRestored = 0x52535446;

constexpr std::uint64_t kEvents = UFFD_FEATURE_EVENT_FORK | UFFD_FEATURE_EVENT_REMAP |
                                  UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP;
// What a touch brings along, and what is filled between two looks for touches: neither delays a
// rank that waits by more than some 20 us and 50 us.
constexpr std::uint64_t kTouchBytes = 64u << 10, kFillBytes = 256u << 10;
constexpr int kKeeperBytes = 8 << 20;  // room for the descriptors of thousands of processes

Result<Fd> Duplicate(const Fd& fd) {
  Fd copy(fcntl(fd.get(), F_DUPFD_CLOEXEC, 3));
  if (!copy) return std::unexpected(ErrnoError("dup"));
  return copy;
}

Result<Fd> Listen(const Fd& images) {
  Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener) return std::unexpected(ErrnoError("socket for lazy pages"));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  // The directory has no path but this.
  std::format_to_n(address.sun_path, sizeof address.sun_path - 1, "/proc/self/fd/{}/{}",
                   images.get(), kSocketName);
  unlinkat(images.get(), kSocketName, 0);
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener.get(), 1) != 0)
    return std::unexpected(ErrnoError("listen for lazy pages"));
  return listener;
}

// One message and the descriptor in it; no byte at the end, or when there is none to wait for.
Result<Fd> ReceiveFd(int socket, int flags) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t size = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
  if (size < 0) return std::unexpected(ErrnoError("receive a userfaultfd"));
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (size == 0 || header == nullptr || header->cmsg_type != SCM_RIGHTS)
    return Fail("CRIU sent no userfaultfd");
  int fd;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return Fd(fd);
}

void Wake(const Fd& uffd, std::uint64_t address) {
  uffdio_range range{address, kPageBytes};
  ioctl(uffd.get(), UFFDIO_WAKE, &range);
}

// Puts in bytes, or zeros; gives how many pages were, else the error.
struct PutResult {
  std::uint64_t pages = 0;
  int error = 0;
};
PutResult PutBytes(const Fd& uffd, std::uint64_t address, const std::byte* bytes,
                   std::uint64_t pages) {
  std::int64_t put = 0;
  int result;
  if (bytes != nullptr) {
    uffdio_copy copy{address, reinterpret_cast<std::uintptr_t>(bytes), pages * kPageBytes, 0, 0};
    result = ioctl(uffd.get(), UFFDIO_COPY, &copy);
    put = copy.copy;
  } else {
    uffdio_zeropage zero{{address, pages * kPageBytes}, 0, 0};
    result = ioctl(uffd.get(), UFFDIO_ZEROPAGE, &zero);
    put = zero.zeropage;
  }
  if (put > 0) return {static_cast<std::uint64_t>(put) / kPageBytes, 0};
  return {0, result == 0 ? EAGAIN : errno};
}

}  // namespace

Result<> PageFill::Available() {
  const Fd uffd(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK)));
  uffdio_api api{UFFD_API, kEvents, 0};
  if (uffd && ioctl(uffd.get(), UFFDIO_API, &api) == 0) return {};
  return std::unexpected(
      ErrnoError(uffd ? "userfaultfd with events of fork, mremap and munmap" : "userfaultfd"));
}

Result<std::unique_ptr<PageFill>> PageFill::Begin(const Fd& images,
                                                  const std::vector<image::TaskMemory>& memory,
                                                  std::shared_ptr<image::StoredPages> pages) {
  std::unique_ptr<PageFill> fill(new PageFill);
  XMPI_ASSIGN_OR_RETURN(fill->images_, Duplicate(images));
  XMPI_ASSIGN_OR_RETURN(fill->listener_, Listen(images));
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return std::unexpected(ErrnoError("socketpair for lazy pages"));
  fill->keeper_ = Fd(ends[0]);
  fill->into_keeper_ = Fd(ends[1]);
  (void)setsockopt(ends[1], SOL_SOCKET, SO_SNDBUFFORCE, &kKeeperBytes, sizeof kKeeperBytes);
  fill->wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fill->wake_) return std::unexpected(ErrnoError("eventfd for lazy pages"));
  fill->pages_ = std::move(pages);
  for (const image::TaskMemory& task : memory) {
    fill->memory_[task.pid] = task;
    for (const image::PageRun& run : task.runs) {
      fill->total_ += run.pages;
      fill->Count({run.address, run.pages, task.pid, run.address}, true);
    }
  }
  fill->thread_ = std::jthread([raw = fill.get()] { raw->Run(); });
  return fill;
}

PageFill::~PageFill() {
  stop_ = true;
  eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) thread_.join();
  if (listener_) unlinkat(images_.get(), kSocketName, 0);
}

void PageFill::Fill(std::function<void(Result<>)> done) {
  done_ = std::move(done);
  filling_ = true;
  eventfd_write(wake_.get(), 1);
}

void PageFill::Run() {
  Result<bool> more = true;
  while (more && *more && !stop_) more = Step();
  if (stop_) return;
  if (more) {
    tasks_.clear();
    EmptyKeeper();
    pages_.reset();
    return done_({});
  }
  // Whoever needs a page waits from now on. Nobody may know of a copy's trouble before it matters.
  log::Error("fill.failed", {{"why", more.error().message}});
  criu_.Close();
  pollfd wait{wake_.get(), POLLIN, 0};
  while (!stop_ && !filling_) {
    poll(&wait, 1, -1);
    eventfd_t count;
    eventfd_read(wake_.get(), &count);
  }
  if (!stop_) done_(std::unexpected(more.error()));
}

Result<bool> PageFill::Step() {
  const bool fill = filling_ && restored_;
  // Something that a process does to its memory is under way: its event comes at once.
  const bool later = no_place_.has_value();
  std::vector<pollfd> waits{{wake_.get(), POLLIN, 0},
                            {(criu_ ? criu_ : listener_).get(), POLLIN, 0}};
  std::vector<Task*> tasks;
  for (Task& task : tasks_) {
    tasks.push_back(&task);
    waits.push_back({task.uffd.get(), POLLIN, 0});
  }
  if (poll(waits.data(), waits.size(), fill ? (later ? 1 : 0) : -1) < 0 && errno != EINTR)
    return std::unexpected(ErrnoError("poll for lazy pages"));
  if (waits[0].revents != 0) {
    eventfd_t count;
    eventfd_read(wake_.get(), &count);
  }
  if (waits[1].revents != 0) XMPI_RETURN_IF_ERROR(ReadFromCriu());
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (waits[i + 2].revents != 0) XMPI_RETURN_IF_ERROR(ReadEvents(tasks[i]));
  }
  Result<bool> more = true;
  if (fill) more = FillSome();
  tasks_.remove_if([](const Task& task) { return task.gone; });
  return more;
}

Result<> PageFill::ReadFromCriu() {
  if (!criu_) {
    criu_ = Fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!criu_) return std::unexpected(ErrnoError("accept for lazy pages"));
    unlinkat(images_.get(), kSocketName, 0);
    listener_.Close();
    return {};
  }
  std::int32_t word = 0;
  const ssize_t size = recv(criu_.get(), &word, sizeof word, MSG_WAITALL);
  if (size == sizeof word && word < 0) return {};
  if (size == sizeof word && word != kRestored) return TakeTask(word);
  // Nothing more comes; poll takes no notice of a descriptor less than zero.
  criu_.Close();
  if (size != sizeof word) stop_ = true;  // the restore fails, and tells why
  restored_ = true;
  if (stop_) return {};
  if (memory_.empty()) return {};
  return Fail(
      std::format("CRIU has restored no PID {}, whose memory is here", memory_.begin()->first));
}

Result<> PageFill::TakeTask(pid_t pid) {
  XMPI_ASSIGN_OR_RETURN(Fd uffd, ReceiveFd(criu_.get(), 0));
  XMPI_RETURN_IF_ERROR(Keep(uffd));
  Task& task = tasks_.emplace_back();
  task.pid = pid;
  task.uffd = std::move(uffd);
  const auto memory = memory_.extract(pid);
  if (memory.empty()) return {};
  for (const image::PageRun& run : memory.mapped().runs)
    task.missing.Add({run.address, run.pages, pid, run.address});
  return {};
}

Result<> PageFill::Keep(const Fd& uffd) {
  return os::SendMessage(into_keeper_.get(), std::string_view("", 1), {uffd.get()}, MSG_DONTWAIT);
}

Result<> PageFill::ReadEvents(Task* task) {
  std::array<uffd_msg, 16> messages;
  const ssize_t size = read(task->uffd.get(), messages.data(), sizeof messages);
  if (size < 0) {
    if (errno == EAGAIN || errno == EINTR) return {};
    return std::unexpected(ErrnoError("read a userfaultfd"));
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(size) / sizeof(uffd_msg); ++i) {
    const auto& arg = messages[i].arg;
    if (messages[i].event != UFFD_EVENT_PAGEFAULT) no_place_.reset();
    switch (messages[i].event) {
      case UFFD_EVENT_PAGEFAULT:
        XMPI_RETURN_IF_ERROR(OnFault(task, arg.pagefault.address & ~(kPageBytes - 1)));
        break;
      case UFFD_EVENT_FORK:
        XMPI_RETURN_IF_ERROR(OnFork(*task, Fd(static_cast<int>(arg.fork.ufd))));
        break;
      case UFFD_EVENT_REMAP:
        total_ -= Drop(task, arg.remap.to, arg.remap.to + arg.remap.len);
        task->missing.Move(arg.remap.from, arg.remap.to, arg.remap.len);
        break;
      case UFFD_EVENT_REMOVE:
      case UFFD_EVENT_UNMAP:
        total_ -= Drop(task, arg.remove.start, arg.remove.end);
        break;
      default:
        return Fail(std::format("unknown event {} of a userfaultfd", messages[i].event));
    }
  }
  return {};
}

Result<> PageFill::OnFault(Task* task, std::uint64_t address) {
  const std::optional<MissingRun> run = task->missing.At(address);
  Put put = Put::kDone;
  if (run) {
    const std::uint64_t end = (address / kTouchBytes + 1) * kTouchBytes;
    XMPI_ASSIGN_OR_RETURN(put, PutPages(task, run->Part(address, end)));
  } else {
    const PutResult zero = PutBytes(task->uffd, address, nullptr, 1);
    if (zero.error == ESRCH) End(task);
    if (zero.error != 0) put = Put::kLater;
  }
  // It looks again, and asks again if it must: by then we have heard what goes on.
  if (put == Put::kLater) Wake(task->uffd, address);
  return {};
}

Result<> PageFill::OnFork(const Task& parent, Fd uffd) {
  // Between the read that brought it and here nobody but us has it.
  XMPI_RETURN_IF_ERROR(Keep(uffd));
  Task& child = tasks_.emplace_back();
  child.pid = parent.pid;
  child.uffd = std::move(uffd);
  child.missing = parent.missing;
  for (const MissingRun& run : child.missing.All()) {
    total_ += run.pages;
    Count(run, true);
  }
  return {};
}

// True: there may be more to do.
Result<bool> PageFill::FillSome() {
  if (!releasing_) {
    releasing_ = true;
    for (auto at = wanted_.begin(); at != wanted_.end();) {
      const auto [key, pages] = *at;
      at = pages == 0 ? wanted_.erase(at) : std::next(at);
      if (pages == 0) Release(key.first, key.second);
    }
  }
  for (Task& task : tasks_) {
    const std::optional<MissingRun> run = task.missing.Next(task.next);
    if (!run) continue;
    const std::uint64_t end = (run->address / kFillBytes + 1) * kFillBytes;
    XMPI_ASSIGN_OR_RETURN(const Put put, PutPages(&task, run->Part(run->address, end)));
    if (put == Put::kDone) task.next = end;
    return true;
  }
  return false;
}

Result<PageFill::Put> PageFill::PutPages(Task* task, MissingRun run) {
  std::uint64_t most = run.pages;
  while (run.pages > 0 && !task->gone) {
    const auto found = pages_->Find(run.pid, run.origin, std::min(most, run.pages));
    if (found.kind == image::StoredPages::Kind::kAbsent)
      return Fail(std::format("page {:#x} of PID {} is not here", run.origin, run.pid));
    const std::uint64_t pages = std::min({found.pages, run.pages, most});
    const PutResult put = PutBytes(task->uffd, run.address, found.data, pages);
    std::uint64_t settled = put.pages;
    if (put.pages > 0) {
      no_place_.reset();
      filled_ += Drop(task, run.address, run.address + put.pages * kPageBytes);
    } else if (put.error == ENOENT && pages > 1) {
      most = pages / 2;  // it may lie in two mappings side by side
    } else if (put.error == EEXIST) {
      settled = 1;
      filled_ += Drop(task, run.address, run.address + kPageBytes);
      Wake(task->uffd, run.address);
    } else if (put.error == ESRCH) {
      End(task);
    } else {
      return OnPutFailure(run, put.error);
    }
    run = run.Part(run.address + settled * kPageBytes, UINT64_MAX);
  }
  return Put::kDone;
}

// What says so is that the process is changing its mappings, of which an event is on its way.
Result<PageFill::Put> PageFill::OnPutFailure(const MissingRun& run, int error) {
  const auto now = Clock::now();
  if (!no_place_ || no_place_->address != run.address) no_place_ = {run.address, now};
  const bool waits = error == EAGAIN || error == ENOENT || error == EINTR;
  if (waits && now - no_place_->since < limits::kPageHasPlace) return Put::kLater;
  return Fail(std::format("cannot put in page {:#x} of PID {}: {}", run.address, run.pid,
                          std::strerror(error)));
}

std::uint64_t PageFill::Drop(Task* task, std::uint64_t begin, std::uint64_t end) {
  std::uint64_t pages = 0;
  for (const MissingRun& run : task->missing.Cut(begin, end)) {
    pages += run.pages;
    Count(run, false);
  }
  return pages;
}

void PageFill::End(Task* task) {
  task->gone = true;
  total_ -= Drop(task, 0, UINT64_MAX);
}

void PageFill::Count(const MissingRun& run, bool more) {
  const std::uint64_t end = run.origin + run.pages * kPageBytes;
  for (std::uint64_t at = run.origin; at < end;) {
    const std::uint64_t region = at / kRegionBytes * kRegionBytes;
    const std::uint64_t next = std::min(end, region + kRegionBytes);
    const auto count = wanted_.try_emplace({run.pid, region}, 0).first;
    const std::uint64_t pages = (next - at) / kPageBytes;
    more ? count->second += pages : count->second -= pages;
    if (count->second == 0 && releasing_) {
      wanted_.erase(count);
      Release(run.pid, region);
    }
    at = next;
  }
}

void PageFill::Release(pid_t pid, std::uint64_t region) {
  pages_->Release(pid, {region, kRegionBytes / kPageBytes});
}

// Whoever else has the keeper has the same queue.
void PageFill::EmptyKeeper() {
  while (ReceiveFd(keeper_.get(), MSG_DONTWAIT)) {
  }
}

}  // namespace xmpi::criu
