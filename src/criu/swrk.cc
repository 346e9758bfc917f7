#include "criu/swrk.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <format>

#include "base/limits.h"
#include "criu/criu_log.h"
#include "os/pidfd.h"

namespace xmpi::criu {
namespace {

constexpr std::size_t kMaxAnswerBytes = 64u << 10;

// To its end, wherever the descriptor stands; a file of /proc tells no size beforehand.
std::string ReadWhole(int fd) {
  std::string text;
  std::array<char, 1 << 14> buffer;
  for (ssize_t size;
       (size = pread(fd, buffer.data(), buffer.size(), static_cast<off_t>(text.size()))) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(size));
  return text;
}

std::unexpected<Error> EndedEarly(const Swrk& swrk) {
  std::string printed = LogTail(ReadWhole(swrk.output.get()), 500);
  std::replace(printed.begin(), printed.end(), '\n', ' ');
  return Fail(printed.empty() ? "criu ended without an answer"
                              : std::format("criu ended without an answer: {}", printed));
}

}  // namespace

Result<os::SpawnRequest> PrepareSwrk(const std::string& criu, Swrk* swrk, Fd* theirs) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return std::unexpected(ErrnoError("socketpair for criu"));
  }
  swrk->socket = Fd(ends[0]);
  *theirs = Fd(ends[1]);
  swrk->output = Fd(memfd_create("criu", MFD_CLOEXEC));
  if (!swrk->output) return std::unexpected(ErrnoError("memfd for criu"));

  os::SpawnRequest request;
  request.argv = {criu, "swrk", std::to_string(kSwrkSocketFd)};
  const char* path = std::getenv("PATH");
  // Debian keeps criu in /usr/sbin, which is in nobody's PATH but root's.
  request.env = {std::format("PATH={}:/usr/local/sbin:/usr/sbin:/sbin", path ? path : "/usr/bin")};
  request.fds = {{.target = 1, .fd = swrk->output.get()},
                 {.target = 2, .fd = swrk->output.get()},
                 {.target = kSwrkSocketFd, .fd = theirs->get()}};
  if (swrk->directory) {
    request.fds.push_back({.target = kSwrkImagesFd, .fd = swrk->directory.get()});
  }
  return request;
}

Result<rpc::criu_resp> Exchange(const Swrk& swrk, const rpc::criu_req& request,
                                std::chrono::steady_clock::time_point deadline) {
  const std::string bytes = request.SerializeAsString();
  if (send(swrk.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) {
    return EndedEarly(swrk);
  }
  std::array<char, kMaxAnswerBytes> buffer;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    std::array<pollfd, 2> waits{{{swrk.socket.get(), POLLIN, 0}, {swrk.pidfd.get(), POLLIN, 0}}};
    const int timeout_ms = static_cast<int>(std::max<long>(0, left.count()));
    const int ready = poll(waits.data(), waits.size(), timeout_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      os::PidfdSendSignal(swrk.pidfd.get(), SIGKILL);
      return Fail(ErrorCode::kTimeout, "criu did not answer in time and was ended");
    }
    const ssize_t size = recv(swrk.socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR) && waits[1].revents == 0) continue;
    if (size <= 0) return EndedEarly(swrk);
    rpc::criu_resp answer;
    if (!answer.ParseFromArray(buffer.data(), static_cast<int>(size))) {
      return Fail(ErrorCode::kProtocol, "criu's answer cannot be read");
    }
    return answer;
  }
}

void AwaitEnd(const Swrk& swrk) {
  pollfd wait{swrk.pidfd.get(), POLLIN, 0};
  while (poll(&wait, 1, static_cast<int>(std::chrono::milliseconds(limits::kCriuEnd).count())) <
             0 &&
         errno == EINTR) {
  }
}

std::string ReadFileAt(int directory_fd, const char* name) {
  const Fd file(openat(directory_fd, name, O_RDONLY | O_CLOEXEC));
  return ReadWhole(file.get());
}

}  // namespace xmpi::criu
