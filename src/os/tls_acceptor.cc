#include "os/tls_acceptor.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "base/limits.h"

namespace xmpi::os {
namespace {

int MillisecondsUntil(TlsAcceptor::Clock::time_point when) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(when - TlsAcceptor::Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
}

}  // namespace

Result<> TlsAcceptor::Wait(int stop_fd, Clock::time_point deadline) {
  std::vector<pollfd> items = {{stop_fd, POLLIN, 0}, {listener_.get(), POLLIN, 0}};
  auto next = deadline;
  for (const Stranger& stranger : strangers_) {
    const bool writes = SSL_want_write(stranger.socket.ssl_.get());
    items.push_back(
        {stranger.socket.socket_.get(), static_cast<short>(writes ? POLLOUT : POLLIN), 0});
    next = std::min(next, stranger.deadline);
  }
  if (::poll(items.data(), items.size(), MillisecondsUntil(next)) < 0 && errno != EINTR) {
    return std::unexpected(ErrnoError("wait for a peer"));
  }
  if (items[0].revents != 0) return Fail(ErrorCode::kRefused, "called off");
  if (Clock::now() >= deadline) return Fail(ErrorCode::kTimeout, "no peer came in time");
  ready_.clear();
  for (std::size_t i = 1; i < items.size(); ++i) ready_.push_back(items[i].revents != 0);
  return {};
}

void TlsAcceptor::AcceptOne(int stop_fd, const std::function<void(const Error&)>& on_refused) {
  Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) {  // it is gone already, or there is no descriptor for it, which may last
    pollfd stop{stop_fd, POLLIN, 0};
    if (errno == EMFILE || errno == ENFILE) ::poll(&stop, 1, limits::kAcceptPause.count());
    return;
  }
  if (strangers_.size() >= limits::kImageStrangers) MakeRoom(on_refused);
  auto socket = TlsSocket::Make(context_, std::move(fd), deadlines_);
  if (!socket) return on_refused(socket.error());
  strangers_.push_back({std::move(*socket), Clock::now() + deadlines_.handshake});
}

// As on a link: silence costs a peer nothing, and nobody can aim.
void TlsAcceptor::MakeRoom(const std::function<void(const Error&)>& on_refused) {
  auto victim = std::find_if(strangers_.begin(), strangers_.end(),
                             [](const Stranger& stranger) { return !stranger.spoke; });
  if (victim == strangers_.end())
    victim = std::next(strangers_.begin(), static_cast<long>(random_() % strangers_.size()));
  on_refused({ErrorCode::kRefused, "too many connections that prove nothing"});
  strangers_.erase(victim);
}

Result<TlsSocket> TlsAcceptor::Accept(int stop_fd, Clock::time_point deadline,
                                      const std::function<void(const Error&)>& on_refused) {
  for (;;) {
    XMPI_RETURN_IF_ERROR(Wait(stop_fd, deadline));
    for (std::size_t i = strangers_.size(); i-- > 0;) {
      Stranger& stranger = strangers_[i];
      Result<bool> done = false;
      if (ready_[i + 1]) {
        stranger.spoke = true;
        done = stranger.socket.StepHandshake(true);
      } else if (Clock::now() >= stranger.deadline) {
        done = Fail(ErrorCode::kTimeout, "it proved nothing in time");
      }
      if (done && !*done) continue;
      TlsSocket socket = std::move(stranger.socket);
      strangers_.erase(strangers_.begin() + static_cast<long>(i));
      if (done) return socket;
      on_refused(done.error());
    }
    if (ready_[0]) AcceptOne(stop_fd, on_refused);
  }
}

}  // namespace xmpi::os
