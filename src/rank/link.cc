#include "rank/link.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>

#include "base/check.h"
#include "rank/say.h"

namespace xmpi::rank {
namespace {

// The descriptor that XMPI_FD names, or -1: a number, of a socket of the right kind.
int ControlSocket(const char* text) {
  char* end = nullptr;
  errno = 0;
  const long fd = std::strtol(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || fd < 0 || fd > 1 << 20) return -1;
  int domain = 0;
  int type = 0;
  socklen_t size = sizeof domain;
  if (::getsockopt(static_cast<int>(fd), SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) return -1;
  size = sizeof type;
  if (::getsockopt(static_cast<int>(fd), SOL_SOCKET, SO_TYPE, &type, &size) != 0) return -1;
  return domain == AF_UNIX && type == SOCK_SEQPACKET ? static_cast<int>(fd) : -1;
}

}  // namespace

bool Link::Attach() {
  const char* text = std::getenv("XMPI_FD");
  if (text == nullptr) return false;
  const int fd = ControlSocket(text);
  if (fd < 0) {
    Say("XMPI_FD=%s is not a control socket; this rank runs on but cannot move", text);
    return false;
  }
  // Children of the program must not hold the proxy's line open.
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  fd_ = fd;
  return true;
}

bool Link::Take(std::size_t size, rank_link::Message* message, const char** fault) {
  const auto decoded = rank_link::Decode(in_, size);
  *fault = nullptr;
  if (!decoded)
    *fault = decoded.error();
  else if (rank_link::FromRank(decoded->kind))
    *fault = "a kind that only ranks send";
  if (*fault != nullptr) return false;
  *message = *decoded;
  slot_ = message->slot;
  epoch_ = message->epoch;
  attempt_ = message->attempt;
  return true;
}

Link::Got Link::Receive(int flags, rank_link::Message* message) {
  for (;;) {
    const ssize_t size = ::recv(fd_, in_, sizeof in_, flags);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Got::kNothing;
    if (size <= 0) return Got::kClosed;
    const char* fault = nullptr;
    if (Take(static_cast<std::size_t>(size), message, &fault)) return Got::kMessage;
    Say("a packet from the proxy is malformed (%s); skipped", fault);
  }
}

Link::Got Link::ReceiveNow(rank_link::Message* message) { return Receive(MSG_DONTWAIT, message); }

Link::Got Link::ReceiveBlocking(rank_link::Message* message) { return Receive(0, message); }

Link::Got Link::ReceiveInHandler(rank_link::Message* message) {
  const ssize_t size = ::recv(fd_, in_, sizeof in_, MSG_PEEK | MSG_DONTWAIT);
  if (size <= 0) return Got::kNothing;
  const char* fault = nullptr;
  const rank_link::Kind kind = rank_link::PeekKind(in_, static_cast<std::size_t>(size));
  if (kind != rank_link::Kind::kNotice && kind != rank_link::Kind::kAgree &&
      kind != rank_link::Kind::kCancel)
    return Got::kLeft;
  if (!Take(static_cast<std::size_t>(size), message, &fault)) return Got::kLeft;
  char unused;
  while (::recv(fd_, &unused, sizeof unused, MSG_DONTWAIT) < 0 && errno == EINTR) {
  }
  return Got::kMessage;
}

bool Link::Send(rank_link::Message message, int flags) {
  message.slot = slot_;
  message.epoch = epoch_;
  message.attempt = attempt_;
  char out[rank_link::kMessageLimit];
  const std::size_t size = rank_link::Encode(message, out);
  XMPI_CHECK(size > 0);
  for (;;) {
    const ssize_t sent = ::send(fd_, out, size, flags | MSG_NOSIGNAL);
    if (sent >= 0) return true;
    if (errno != EINTR) return false;
  }
}

bool Link::Send(rank_link::Message message) { return Send(message, 0); }

bool Link::SendInHandler(rank_link::Message message) { return Send(message, MSG_DONTWAIT); }

void Link::Poll(int timeout_ms) const {
  pollfd waiting{.fd = fd_, .events = POLLIN, .revents = 0};
  ::poll(&waiting, 1, timeout_ms);
}

}  // namespace xmpi::rank
