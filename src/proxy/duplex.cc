#include "proxy/duplex.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace xmpi::proxy {
namespace {

// A control packet fits (rank_link::kMessageLimit), a PMI line mostly.
constexpr std::size_t kReadBytes = 16u << 10;

}  // namespace

std::shared_ptr<Duplex> Duplex::Open(asio::io_context& loop, Fd socket, OnRead on_read) {
  std::shared_ptr<Duplex> duplex(new Duplex(loop, std::move(socket), std::move(on_read)));
  duplex->AwaitReadable();
  return duplex;
}

Duplex::Duplex(asio::io_context& loop, Fd socket, OnRead on_read)
    : socket_(loop, socket.Release()), on_read_(std::move(on_read)) {}

void Duplex::AwaitReadable() {
  if (ended_ || !socket_.is_open()) return;
  socket_.async_wait(asio::posix::stream_descriptor::wait_read,
                     [self = shared_from_this()](const asio::error_code& error) {
                       if (error) return;
                       self->ReadNow();
                       self->AwaitReadable();
                     });
}

void Duplex::ReadNow() {
  const auto self = shared_from_this();
  std::array<char, kReadBytes> buffer;
  while (!ended_ && socket_.is_open()) {
    const ssize_t size = recv(socket_.native_handle(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    // A packet socket tells this before what the peer sent first, when it left something unread.
    if (size < 0 && errno == ECONNRESET) continue;
    ended_ = size <= 0;
    on_read_({buffer.data(), ended_ ? 0 : static_cast<std::size_t>(size)});
  }
}

void Duplex::Write(std::string bytes) {
  if (!socket_.is_open()) return;
  outgoing_.push_back(std::move(bytes));
  if (!awaiting_writable_) Flush();
}

void Duplex::Flush() {
  while (!outgoing_.empty()) {
    const std::string& next = outgoing_.front();
    const ssize_t size = send(socket_.native_handle(), next.data() + written_,
                              next.size() - written_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return AwaitWritable();
    if (size < 0) return outgoing_.clear();
    written_ += static_cast<std::size_t>(size);
    if (written_ < next.size()) continue;
    outgoing_.pop_front();
    written_ = 0;
  }
}

void Duplex::AwaitWritable() {
  awaiting_writable_ = true;
  socket_.async_wait(asio::posix::stream_descriptor::wait_write,
                     [self = shared_from_this()](const asio::error_code& error) {
                       self->awaiting_writable_ = false;
                       if (!error) self->Flush();
                     });
}

void Duplex::Close() {
  outgoing_.clear();
  asio::error_code ignored;
  socket_.close(ignored);
}

}  // namespace xmpi::proxy
