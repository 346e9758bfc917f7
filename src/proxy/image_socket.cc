#include "proxy/image_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <format>
#include <memory>

#include "base/limits.h"
#include "base/log.h"

namespace xmpi::proxy {
namespace {

using Clock = std::chrono::steady_clock;

void SetImageOptions(int fd, const LinkTimeouts& timeouts) {
  const int on = 1, seconds = 1;
  const auto dead_ms = static_cast<unsigned>(timeouts.image_progress.count());
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead_ms, sizeof(dead_ms));
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

os::TlsSocket::Deadlines SourceDeadlines(const LinkTimeouts& timeouts) {
  return {.handshake = timeouts.handshake, .progress = limits::kTargetAnswer};
}
os::TlsSocket::Deadlines TargetDeadlines(const LinkTimeouts& timeouts) {
  return {.handshake = timeouts.handshake, .progress = timeouts.image_progress};
}

Result<Fd> ConnectTo(const std::string& address, std::uint16_t port, const LinkTimeouts& timeouts,
                     const StopSignal& stop) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* raw = nullptr;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &raw) != 0)
    return Fail("not a numeric address");
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> info(raw, &freeaddrinfo);
  Fd fd(socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return std::unexpected(ErrnoError("socket"));
  if (connect(fd.get(), info->ai_addr, info->ai_addrlen) != 0 && errno != EINPROGRESS)
    return std::unexpected(ErrnoError("connect"));
  XMPI_RETURN_IF_ERROR(stop.Wait(fd.get(), POLLOUT, Clock::now() + timeouts.handshake));
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  errno = error;
  if (error != 0) return std::unexpected(ErrnoError("connect"));
  SetImageOptions(fd.get(), timeouts);
  return fd;
}

}  // namespace

StopSignal::StopSignal() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void StopSignal::Stop() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t size = write(event_.get(), &one, sizeof(one));
  const std::lock_guard lock(mutex_);
  if (socket_ != nullptr) socket_->Abort();
}

bool StopSignal::stopped() const {
  pollfd event{event_.get(), POLLIN, 0};
  return poll(&event, 1, 0) > 0;
}

Result<> StopSignal::Wait(int fd, short events, Clock::time_point deadline) const {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd waits[2] = {{event_.get(), POLLIN, 0}, {fd, events, 0}};
    const int ready = poll(waits, 2, static_cast<int>(std::max<long>(left.count(), 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (waits[0].revents != 0) return Fail(ErrorCode::kRefused, "the move was called off");
    if (ready <= 0) return Fail(ErrorCode::kTimeout, "no answer in time");
    return {};
  }
}

Result<> StopSignal::WaitUntil(Clock::time_point due) const {
  for (;;) {
    const auto left = due - Clock::now();
    const auto wait = std::max<std::chrono::nanoseconds>(left, std::chrono::nanoseconds(0));
    const timespec time{wait.count() / 1'000'000'000, wait.count() % 1'000'000'000};
    pollfd event{event_.get(), POLLIN, 0};
    if (ppoll(&event, 1, &time, nullptr) > 0)
      return Fail(ErrorCode::kRefused, "the move was called off");
    if (Clock::now() >= due) return {};
  }
}

StopSignal::Scope::Scope(StopSignal* stop, os::TlsSocket* socket) : stop_(stop) {
  const std::lock_guard lock(stop_->mutex_);
  stop_->socket_ = socket;
  if (stop_->stopped()) socket->Abort();
}

StopSignal::Scope::~Scope() {
  const std::lock_guard lock(stop_->mutex_);
  stop_->socket_ = nullptr;
}

Result<os::TlsSocket> DialImagePort(const os::TlsContext& tls,
                                    const std::vector<std::string>& addresses, std::uint16_t port,
                                    const LinkTimeouts& timeouts, const StopSignal& stop) {
  std::string answers;
  for (const std::string& address : addresses) {
    Result<Fd> fd = ConnectTo(address, port, timeouts, stop);
    Result<os::TlsSocket> socket =
        fd ? os::TlsSocket::Connect(tls, std::move(*fd), SourceDeadlines(timeouts))
           : Result<os::TlsSocket>(std::unexpected(fd.error()));
    if (socket) return socket;
    answers += std::format("{}{} port {}: {}", answers.empty() ? "" : "; ", address, port,
                           socket.error().message);
  }
  return Fail(ErrorCode::kUnreachable, "no image connection: " + answers);
}

os::TlsAcceptor ImageAcceptor(const os::TlsContext& tls, const Fd& listener,
                              const LinkTimeouts& timeouts) {
  SetImageOptions(listener.get(), timeouts);  // accepted sockets inherit them
  return os::TlsAcceptor(tls, listener, TargetDeadlines(timeouts));
}

void LogStranger(const Error& why) { log::Warn("transfer.stranger", {{"why", why.message}}); }

bool IsWorthAnother(const Error& error) {
  return error.code == ErrorCode::kUnreachable || error.code == ErrorCode::kTimeout;
}

image::ReadAll ReadFrom(os::TlsSocket* socket) {
  return [socket](std::span<std::byte> bytes) { return socket->ReadExactly(bytes); };
}

image::WriteAll WriteTo(os::TlsSocket* socket) {
  return [socket](std::span<const std::byte> bytes) { return socket->Write(bytes); };
}

}  // namespace xmpi::proxy
