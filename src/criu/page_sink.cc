#include "criu/page_sink.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <format>
#include <map>
#include <string>
#include <utility>

#include "criu/image_file.h"
#include "criu/pagemap.h"

namespace xmpi::criu {
namespace {

constexpr int kSocketBytes = 8 << 20;  // larger than what CRIU writes at once
constexpr int kPipeBytes = 1 << 20;    // the most that a pipe may have without asking

// CRIU's protocol between a dump and its page server, as version 4.1.1 speaks it.
struct Header {
  std::uint32_t command = 0;  // the upper half: flags as in a pagemap
  std::uint32_t pages = 0;
  std::uint64_t address = 0;
  std::uint64_t subject = 0;  // the lowest byte: of what kind; the rest: which
};
constexpr std::uint32_t kOpen = 4, kAdd = 6, kClose = 0x1023, kForceClose = 0x1024;
constexpr std::uint32_t kCommandBits = 16, kSubjectBits = 8;
constexpr std::uint64_t kTask = 1, kSharedMapping = 2;

std::unexpected<Error> Broken(std::string_view what) {
  return Fail(ErrorCode::kUnreachable, std::format("CRIU's pages did not come whole: {}", what));
}

class Receiver {
 public:
  Receiver(int socket, int directory) : socket_(socket), directory_(directory) {}

  Result<std::vector<image::TaskMemory>> Run() {
    XMPI_RETURN_IF_ERROR(MakePipe());
    for (;;) {
      Header header;
      XMPI_RETURN_IF_ERROR(Read(&header, sizeof header));
      const std::uint32_t command = header.command & ((1u << kCommandBits) - 1);
      if (command == kOpen) {
        XMPI_RETURN_IF_ERROR(Open(header.subject));
      } else if (command == kAdd) {
        XMPI_RETURN_IF_ERROR(Add(header));
      } else if (command == kClose || command == kForceClose) {
        return Close();
      } else {
        return Broken(std::format("it sent the unknown command {:#x}", header.command));
      }
    }
  }

 private:
  struct Image {
    Pagemap pagemap;
    Fd pages;
  };

  Result<> MakePipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return std::unexpected(ErrnoError("pipe for pages"));
    out_of_pipe_ = Fd(ends[0]);
    into_pipe_ = Fd(ends[1]);
    (void)fcntl(ends[1], F_SETPIPE_SZ, kPipeBytes);
    nowhere_ = Fd(open("/dev/null", O_WRONLY | O_CLOEXEC));
    if (!nowhere_) return std::unexpected(ErrnoError("open /dev/null"));
    return {};
  }

  Result<> Read(void* to, std::size_t size) {
    const ssize_t got = recv(socket_, to, size, MSG_WAITALL);
    if (got == static_cast<ssize_t>(size)) return {};
    return Broken(got < 0 ? ErrnoError("receive").message : "it closed the connection");
  }

  template <class T>
  Result<> Answer(T value) {
    if (send(socket_, &value, sizeof value, MSG_NOSIGNAL) == sizeof value) return {};
    return Broken(ErrnoError("answer").message);
  }

  Result<> Open(std::uint64_t subject) {
    const std::uint64_t kind = subject & ((1u << kSubjectBits) - 1);
    if (kind != kTask && kind != kSharedMapping)
      return Broken(std::format("it has pages of the unknown kind {}", kind));
    Image& image = images_[subject];
    image.pagemap.pages_number = static_cast<std::uint32_t>(images_.size());
    const std::string name = PagesName(image.pagemap.pages_number);
    image.pages =
        Fd(openat(directory_, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!image.pages) return std::unexpected(ErrnoError("make " + name));
    return Answer<char>(0);  // there is no earlier dump that this one builds on
  }

  Result<> Add(const Header& header) {
    const auto image = images_.find(header.subject);
    if (image == images_.end()) return Broken("it has pages of what it has not announced");
    const std::uint32_t flags = header.command >> kCommandBits;
    const bool apart = (flags & kPageLazy) != 0 && IsTask(header.subject);
    if ((flags & kPagePresent) != 0) {
      const std::uint64_t bytes = header.pages * image::kPageBytes;
      XMPI_RETURN_IF_ERROR(Move(bytes, apart ? nowhere_ : image->second.pages));
    }
    image->second.pagemap.Append({header.address, header.pages, apart ? kPageLazy : flags});
    return {};
  }

  // Without copying where the bytes go nowhere.
  Result<> Move(std::uint64_t bytes, const Fd& to) {
    while (bytes > 0) {
      const std::size_t most = std::min<std::uint64_t>(bytes, kPipeBytes);
      const ssize_t came = splice(socket_, nullptr, into_pipe_.get(), nullptr, most, SPLICE_F_MOVE);
      if (came < 0 && errno == EINTR) continue;
      if (came <= 0) return Broken(came < 0 ? ErrnoError("receive").message : "they end too early");
      bytes -= static_cast<std::uint64_t>(came);
      for (std::size_t left = static_cast<std::size_t>(came); left > 0;) {
        const ssize_t went =
            splice(out_of_pipe_.get(), nullptr, to.get(), nullptr, left, SPLICE_F_MOVE);
        if (went < 0 && errno == EINTR) continue;
        if (went <= 0) return std::unexpected(ErrnoError("write pages of an image"));
        left -= static_cast<std::size_t>(went);
      }
    }
    return {};
  }

  Result<std::vector<image::TaskMemory>> Close() {
    std::vector<image::TaskMemory> memory;
    for (const auto& [subject, image] : images_) {
      const std::uint64_t number = subject >> kSubjectBits;
      const std::string name = IsTask(subject) ? PagemapName(number) : SharedPagemapName(number);
      XMPI_RETURN_IF_ERROR(WriteImage(directory_, name.c_str(), Encode(image.pagemap)));
      if (!IsTask(subject)) continue;
      image::TaskMemory task{.pid = static_cast<pid_t>(number), .runs = {}, .digest = {}};
      for (const PagemapEntry& entry : image.pagemap.entries) {
        if (entry.flags == kPageLazy) task.runs.push_back({entry.address, entry.pages});
      }
      std::ranges::sort(task.runs, {}, &image::PageRun::address);
      if (!task.runs.empty()) memory.push_back(std::move(task));
    }
    XMPI_RETURN_IF_ERROR(Answer<std::int32_t>(0));
    return memory;
  }

  static bool IsTask(std::uint64_t subject) {
    return (subject & ((1u << kSubjectBits) - 1)) == kTask;
  }

  const int socket_, directory_;
  Fd into_pipe_, out_of_pipe_, nowhere_;
  std::map<std::uint64_t, Image> images_;
};

}  // namespace

Result<std::unique_ptr<PageSink>> PageSink::Make() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return std::unexpected(ErrnoError("socketpair for pages"));
  for (const int end : ends) {
    (void)setsockopt(end, SOL_SOCKET, SO_SNDBUFFORCE, &kSocketBytes, sizeof kSocketBytes);
  }
  std::unique_ptr<PageSink> sink(new PageSink);
  sink->ours_ = Fd(ends[0]);
  sink->theirs_ = Fd(ends[1]);
  return sink;
}

PageSink::~PageSink() {
  if (thread_.joinable()) (void)Finish();
}

void PageSink::Begin(int directory) {
  theirs_.Close();
  thread_ = std::jthread([this, directory] {
    received_ = Receiver(ours_.get(), directory).Run();
    // criu must not wait for an answer that does not come.
    if (!received_) shutdown(ours_.get(), SHUT_RDWR);
  });
}

Result<std::vector<image::TaskMemory>> PageSink::Finish() {
  shutdown(ours_.get(), SHUT_RDWR);
  thread_.join();
  return std::move(received_);
}

}  // namespace xmpi::criu
