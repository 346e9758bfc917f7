#include "os/link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <array>
#include <format>

#include "os/tls.h"

namespace xmpi::os {
namespace {

constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);
// One TLS record.
constexpr std::size_t kReadBytes = 16u << 10;
constexpr std::size_t kWriteBytes = 64u << 10;
constexpr int kUnsentBytes = 128 << 10;

}  // namespace

struct Link::Connection {
  explicit Connection(std::unique_ptr<TlsStream> s, wire::FrameDecoder d)
      : stream(std::move(s)), decoder(std::move(d)), wake(stream->get_executor()) {}
  std::unique_ptr<TlsStream> stream;
  wire::FrameDecoder decoder;
  asio::steady_timer wake;
  Clock::time_point attached = Clock::now();
  Clock::time_point heard = attached;
  std::array<char, kReadBytes> buffer;
};

void SetLinkOptions(asio::ip::tcp::socket& socket, const LinkTimeouts& timeouts) {
  asio::error_code ignored;
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  const int fd = socket.native_handle();
  const auto user_timeout_ms = static_cast<unsigned>(timeouts.link_timeout.count());
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout_ms, sizeof user_timeout_ms);
  ::setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytes, sizeof kUnsentBytes);
}

Error StreamFailure(TlsStream& stream, std::string_view what, const asio::error_code& error) {
  if (error.category() == asio::error::get_ssl_category()) {
    const auto code = static_cast<unsigned long>(static_cast<unsigned>(error.value()));
    return TlsFailure(stream.native_handle(), what, code);
  }
  const bool ended = error == asio::error::eof || error == asio::ssl::error::stream_truncated;
  const ErrorCode code =
      error == asio::error::connection_refused ? ErrorCode::kRefused : ErrorCode::kUnreachable;
  return Error{code,
               std::format("{}: {}", what, ended ? "the connection was cut" : error.message())};
}

std::string AddressText(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  }
  return address.to_string();
}

Link::Link(asio::io_context& loop, Side side, std::uint64_t session, const LinkTimeouts& timeouts,
           Callbacks callbacks)
    : loop_(loop),
      side_(side),
      timeouts_(timeouts),
      callbacks_(std::move(callbacks)),
      state_(session),
      watch_(loop) {}

std::chrono::milliseconds Link::SilenceLimit() const {
  return side_ == Side::kProxy ? timeouts_.link_timeout
                               : timeouts_.link_timeout + timeouts_.launcher_grace;
}

void Link::StartClock() {
  heard_ = Clock::now();
  if (watching_) return;
  watching_ = true;
  asio::co_spawn(loop_, WatchSilence(shared_from_this()), asio::detached);
}

void Link::Attach(std::unique_ptr<TlsStream> stream, wire::FrameDecoder decoder) {
  if (stopped_) return;
  if (connection_) Detach("a newer connection took its place");
  if (stopped_) return;  // by the callback
  connection_ = std::make_shared<Connection>(std::move(stream), std::move(decoder));
  state_.OnConnect();
  if (side_ == Side::kLauncher) StartClock();
  auto self = shared_from_this();
  asio::co_spawn(loop_, ReadLoop(self, connection_), asio::detached);
  asio::co_spawn(loop_, WriteLoop(self, connection_), asio::detached);
}

asio::awaitable<void> Link::ReadLoop(std::shared_ptr<Link> self,
                                     std::shared_ptr<Connection> connection) {
  while (self->HandleFrames(connection)) {
    const auto [error, bytes] =
        co_await connection->stream->async_read_some(asio::buffer(connection->buffer), kNoThrow);
    if (self->connection_ != connection) co_return;
    if (error) {
      const std::string reason = StreamFailure(*connection->stream, "read", error).message;
      if (self->state_.ClosedByUs()) {
        self->FinishClose();
      } else {
        self->Detach(reason);
      }
      co_return;
    }
    connection->heard = Clock::now();
    if (self->side_ == Side::kLauncher) self->heard_ = connection->heard;
    connection->decoder.Feed({connection->buffer.data(), bytes});
  }
}

bool Link::HandleFrames(const std::shared_ptr<Connection>& connection) {
  while (connection_ == connection) {
    auto frame = connection->decoder.Next();
    if (frame && !*frame) {
      Wake();
      OfferStdioRoom();
      return connection_ == connection;
    }
    const bool greeted = state_.greeted();
    auto handled =
        frame ? HandleFrame(std::move(**frame)) : Result<>(std::unexpected(frame.error()));
    if (connection_ != connection) return false;
    if (!handled) {
      Lose(handled.error());
    } else if (state_.bye()) {
      Lose({ErrorCode::kUnreachable, std::format("the peer closed the link: {}", *state_.bye())});
    } else if (!greeted && state_.greeted()) {
      OnGreeted(connection.get());
    }
  }
  return false;
}

Result<> Link::HandleFrame(wire::Frame frame) {
  XMPI_ASSIGN_OR_RETURN(auto delivery, state_.OnFrame(std::move(frame)));
  NotePong();
  if (!delivery) return {};
  wire::Envelope envelope;
  if (!envelope.ParseFromString(delivery->payload)) {
    return Fail(ErrorCode::kProtocol, "a message that is no Envelope");
  }
  callbacks_.on_message(std::move(envelope));
  return {};
}

void Link::OnGreeted(Connection* connection) {
  up_ = true;
  pinged_ = {};
  // The launcher's hello answers ours, so it heard us after the connection stood.
  if (side_ == Side::kProxy) heard_ = std::max(heard_, connection->attached);
  watch_.cancel();
  Wake();
  callbacks_.on_up();
}

void Link::NotePong() {
  const std::uint64_t pong = state_.last_pong();
  if (side_ != Side::kProxy || pong == 0 || pong > ping_ ||
      ping_ - pong >= std::size(ping_times_)) {
    return;
  }
  heard_ = std::max(heard_, ping_times_[pong % std::size(ping_times_)]);
}

asio::awaitable<void> Link::WriteLoop(std::shared_ptr<Link> self,
                                      std::shared_ptr<Connection> connection) {
  while (self->connection_ == connection) {
    const std::string bytes = self->state_.TakeWrite(kWriteBytes);
    if (bytes.empty()) {
      connection->wake.expires_at(Clock::time_point::max());
      co_await connection->wake.async_wait(kNoThrow);
      continue;
    }
    const auto [error, written] =
        co_await asio::async_write(*connection->stream, asio::buffer(bytes), kNoThrow);
    if (self->connection_ != connection) co_return;
    if (error) {
      self->Detach(StreamFailure(*connection->stream, "write", error).message);
      co_return;
    }
    // What the kernel holds can no longer be overtaken, so it is kept short (TCP_NOTSENT_LOWAT).
    if (bytes.size() >= kReadBytes) {
      co_await connection->stream->next_layer().async_wait(asio::socket_base::wait_write, kNoThrow);
    }
  }
}

asio::awaitable<void> Link::WatchSilence(std::shared_ptr<Link> self) {
  while (!self->stopped_) {
    const auto now = Clock::now();
    if (now - self->heard_ >= self->SilenceLimit()) {
      self->Lose(
          {ErrorCode::kTimeout, std::format("not heard for {} ms", self->SilenceLimit().count())});
      co_return;
    }
    if (self->connection_ && now - self->connection_->heard >= self->timeouts_.redial_silence) {
      self->Detach(std::format("silent for {} ms", self->timeouts_.redial_silence.count()));
      continue;
    }
    self->PingIfDue(now);
    self->watch_.expires_at(self->NextLook());
    co_await self->watch_.async_wait(kNoThrow);
  }
}

void Link::PingIfDue(Clock::time_point now) {
  // Only proxies ping: the pong is what a proxy needs, and the ping is what the launcher needs.
  if (side_ != Side::kProxy || !up_ || now - pinged_ < timeouts_.ping_interval) return;
  pinged_ = now;
  ++ping_;
  ping_times_[ping_ % std::size(ping_times_)] = now;
  state_.Ping(ping_);
  Wake();
}

Link::Clock::time_point Link::NextLook() const {
  auto next = heard_ + SilenceLimit();
  if (connection_) next = std::min(next, connection_->heard + timeouts_.redial_silence);
  if (up_ && side_ == Side::kProxy) next = std::min(next, pinged_ + timeouts_.ping_interval);
  return next;
}

Result<> Link::Send(wire::Channel channel, const wire::Envelope& message) {
  if (stopped_) return Fail(ErrorCode::kUnreachable, "the link is gone");
  std::string bytes;
  if (!message.SerializeToString(&bytes)) return Fail("a message that cannot be serialized");
  XMPI_RETURN_IF_ERROR(state_.Send(channel, bytes));
  if (channel == wire::Channel::kStdio && state_.StdioRoom() <= 0) room_wanted_ = true;
  Wake();
  return {};
}

void Link::StdioDone(std::size_t messages) {
  state_.StdioDone(messages);
  Wake();
}

void Link::OfferStdioRoom() {
  // Half a window at least, so that a writer is not woken for every message.
  constexpr auto kEnough = static_cast<std::int64_t>(limits::kStdioWindowBytes / 2);
  if (!room_wanted_ || stopped_ || state_.StdioRoom() < kEnough) return;
  room_wanted_ = false;
  callbacks_.on_stdio_room();
}

void Link::Wake() {
  if (connection_) connection_->wake.cancel();
}

void Link::Cut(std::string_view reason) {
  if (connection_) Detach(std::string(reason));
}

void Link::Detach(const std::string& reason) {
  const auto connection = std::move(connection_);
  connection_ = nullptr;
  state_.OnDisconnect();
  asio::error_code ignored;
  connection->stream->lowest_layer().close(ignored);
  connection->wake.cancel();
  watch_.cancel();
  const bool was_up = std::exchange(up_, false);
  if (!stopped_) callbacks_.on_detached(reason, was_up);
}

void Link::Close(std::string_view reason) {
  closing_ = true;
  state_.Close(reason);
  Wake();
}

void Link::FinishClose() {
  Stop();
  callbacks_.on_closed();
}

void Link::Lose(Error reason) {
  if (stopped_) return;
  if (closing_) {
    FinishClose();
    return;
  }
  Stop();
  callbacks_.on_lost(std::move(reason));
}

void Link::Stop() {
  if (stopped_) return;
  stopped_ = true;
  watch_.cancel();
  if (connection_) Detach("stopped");
}

}  // namespace xmpi::os
