#include "os/link_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <format>
#include <list>
#include <map>
#include <random>

#include "base/check.h"
#include "base/log.h"
#include "os/link.h"
#include "os/tls.h"

namespace xmpi::os {
namespace {

using asio::ip::tcp;
constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);
// Refusals are logged aloud this often, then only at debug level: strangers can make many.
constexpr std::uint64_t kLoudRefusals = 10;

// A connection that has not proved itself. Until it has sent something it is just a socket.
struct Stranger {
  Stranger(tcp::socket s, std::string p)
      : socket(std::move(s)), deadline(socket.get_executor()), peer(std::move(p)) {}

  void Close() {
    asio::error_code ignored;
    socket.close(ignored);
    if (stream) stream->lowest_layer().close(ignored);
    deadline.cancel();
  }

  tcp::socket socket;
  std::unique_ptr<TlsStream> stream;
  asio::steady_timer deadline;
  std::string peer;
  std::string greeting;  // the bytes of its hello so far
  bool spoke = false;
  bool timed_out = false;
};
using StrangerPtr = std::shared_ptr<Stranger>;

}  // namespace

class LinkServer::Impl : public std::enable_shared_from_this<LinkServer::Impl> {
 public:
  Impl(asio::io_context& loop, const Secret& secret, Options options, LinkServerEvents events)
      : loop_(loop),
        secret_(secret.Copy()),
        options_(std::move(options)),
        events_(std::move(events)),
        acceptor_(loop),
        random_(std::random_device()()) {}

  Result<> Open();
  void Stop();
  void Expect(ProxyId proxy);
  std::shared_ptr<Link> Find(ProxyId proxy) const;
  void Forget(ProxyId proxy);

  const Options& options() const { return options_; }

  asio::io_context& loop_;
  std::uint16_t port_ = 0;
  std::vector<std::string> addresses_;
  std::list<StrangerPtr> strangers_;
  std::uint64_t refused_ = 0;

 private:
  static asio::awaitable<void> AcceptLoop(std::shared_ptr<Impl> self);
  static asio::awaitable<void> Greet(std::shared_ptr<Impl> self, StrangerPtr stranger);
  asio::awaitable<Result<std::shared_ptr<Link>>> Prove(StrangerPtr stranger);
  asio::awaitable<Result<std::uint64_t>> ReadSession(StrangerPtr stranger);
  std::optional<Secret> KeyFor(std::string_view identity) const;
  Result<std::shared_ptr<Link>> LinkFor(std::string_view identity) const;
  void Admit(tcp::socket socket);
  void MakeRoom();
  void Refuse(const Stranger& stranger, const Error& error);
  Link::Callbacks CallbacksFor(ProxyId proxy);

  Secret secret_;
  const Options options_;
  const LinkServerEvents events_;
  std::optional<TlsContext> tls_;
  tcp::acceptor acceptor_;
  std::map<ProxyId, std::shared_ptr<Link>> links_;
  std::map<ProxyId, std::string> peers_;  // where the latest connection came from
  std::minstd_rand random_;
  bool stopped_ = false;
};

Result<> LinkServer::Impl::Open() {
  XMPI_ASSIGN_OR_RETURN(addresses_, ReachableAddresses(options_.interface));
  const std::string bind_to = options_.interface.empty() ? "" : addresses_.front();
  if (!bind_to.empty()) addresses_.resize(1);
  XMPI_ASSIGN_OR_RETURN(Listener listener, os::Listen(bind_to, options_.ports));
  XMPI_ASSIGN_OR_RETURN(
      tls_, TlsContext::Server([this](std::string_view identity) { return KeyFor(identity); }));
  int family = AF_INET;
  socklen_t size = sizeof family;
  ::getsockopt(listener.socket.get(), SOL_SOCKET, SO_DOMAIN, &family, &size);
  asio::error_code error;
  acceptor_.assign(family == AF_INET6 ? tcp::v6() : tcp::v4(), listener.socket.Release(), error);
  if (error) return Fail(std::format("listen: {}", error.message()));
  port_ = listener.port;
  asio::co_spawn(loop_, AcceptLoop(shared_from_this()), asio::detached);
  return {};
}

void LinkServer::Impl::Stop() {
  stopped_ = true;
  asio::error_code ignored;
  acceptor_.close(ignored);
  for (const auto& stranger : strangers_) stranger->Close();
  for (const auto& [proxy, link] : links_) link->Stop();
  links_.clear();
}

asio::awaitable<void> LinkServer::Impl::AcceptLoop(std::shared_ptr<Impl> self) {
  while (!self->stopped_) {
    auto [error, socket] = co_await self->acceptor_.async_accept(kNoThrow);
    if (self->stopped_) co_return;
    if (!error) {
      self->Admit(std::move(socket));
      continue;
    }
    // Out of descriptors, or the connection died in the queue: neither ends the service.
    log::Warn("link.accept", {{"error", error.message()}});
    asio::steady_timer pause(self->loop_, limits::kAcceptPause);
    co_await pause.async_wait(kNoThrow);
  }
}

void LinkServer::Impl::Admit(tcp::socket socket) {
  asio::error_code error;
  const auto peer = socket.remote_endpoint(error);
  if (error) return;
  if (strangers_.size() >= limits::kStrangers) MakeRoom();
  SetLinkOptions(socket, options_.timeouts);
  auto stranger = std::make_shared<Stranger>(std::move(socket), AddressText(peer.address()));
  strangers_.push_back(stranger);
  asio::co_spawn(loop_, Greet(shared_from_this(), std::move(stranger)), asio::detached);
}

// The oldest one that never said a word goes first, so that silence costs a proxy nothing; among
// those that did speak, chance decides, so that nobody can aim.
void LinkServer::Impl::MakeRoom() {
  auto victim = std::find_if(strangers_.begin(), strangers_.end(),
                             [](const StrangerPtr& stranger) { return !stranger->spoke; });
  if (victim == strangers_.end()) {
    victim = std::next(strangers_.begin(), static_cast<long>(random_() % strangers_.size()));
  }
  Refuse(**victim, {ErrorCode::kRefused, "too many connections that prove nothing"});
  (*victim)->Close();
  strangers_.erase(victim);
}

void LinkServer::Impl::Refuse(const Stranger& stranger, const Error& error) {
  ++refused_;
  log::Write(refused_ <= kLoudRefusals ? log::Level::kWarn : log::Level::kDebug, "link.refused",
             {{"peer", stranger.peer}, {"reason", error.message}});
}

asio::awaitable<void> LinkServer::Impl::Greet(std::shared_ptr<Impl> self, StrangerPtr stranger) {
  stranger->deadline.expires_after(self->options_.timeouts.handshake);
  stranger->deadline.async_wait([stranger](const asio::error_code& error) {
    if (error) return;
    stranger->timed_out = true;
    stranger->Close();
  });
  auto link = co_await self->Prove(stranger);
  stranger->deadline.cancel();
  // Gone from the list: evicted, and already counted.
  const bool evicted = std::erase(self->strangers_, stranger) == 0;
  if (self->stopped_ || evicted) co_return;
  if (!link) {
    if (stranger->timed_out) link.error().message = "it proved nothing in time";
    self->Refuse(*stranger, link.error());
    stranger->Close();
    co_return;
  }
  wire::FrameDecoder decoder;
  decoder.Feed(stranger->greeting);
  (*link)->Attach(std::move(stranger->stream), std::move(decoder));
}

asio::awaitable<Result<std::shared_ptr<Link>>> LinkServer::Impl::Prove(StrangerPtr stranger) {
  const auto [wait_error] =
      co_await stranger->socket.async_wait(asio::socket_base::wait_read, kNoThrow);
  if (wait_error) co_return Fail(ErrorCode::kUnreachable, wait_error.message());
  stranger->spoke = true;
  SSL* ssl = SSL_new(tls_->native());
  if (ssl == nullptr) co_return std::unexpected(TlsFailure(nullptr, "TLS"));
  stranger->stream = std::make_unique<TlsStream>(std::move(stranger->socket), ssl);
  TlsStream& stream = *stranger->stream;
  const auto [error] = co_await stream.async_handshake(asio::ssl::stream_base::server, kNoThrow);
  if (error) co_return std::unexpected(StreamFailure(stream, "TLS handshake", error));
  auto identity = CheckPeer(ssl);
  if (!identity) co_return std::unexpected(identity.error());
  auto session = co_await ReadSession(stranger);
  if (!session) co_return std::unexpected(session.error());
  auto link = LinkFor(*identity);
  if (link && !(*link)->Accepts(*session)) {
    co_return Fail(ErrorCode::kRefused, std::format("{} is taken by another process", *identity));
  }
  if (link) peers_[ParseIdentity(*identity)->proxy] = stranger->peer;
  co_return link;
}

asio::awaitable<Result<std::uint64_t>> LinkServer::Impl::ReadSession(StrangerPtr stranger) {
  wire::FrameDecoder decoder;
  for (;;) {
    std::array<char, 1024> buffer;
    const auto [error, bytes] =
        co_await stranger->stream->async_read_some(asio::buffer(buffer), kNoThrow);
    if (error) co_return std::unexpected(StreamFailure(*stranger->stream, "hello", error));
    stranger->greeting.append(buffer.data(), bytes);
    decoder.Feed({buffer.data(), bytes});
    auto frame = decoder.Next();
    if (!frame) co_return std::unexpected(frame.error());
    if (!*frame) continue;
    if ((*frame)->kind != wire::FrameKind::kHello || (*frame)->number == 0) {
      co_return Fail(ErrorCode::kProtocol, "the first frame is no hello");
    }
    co_return (*frame)->number;
  }
}

std::optional<Secret> LinkServer::Impl::KeyFor(std::string_view identity) const {
  if (!LinkFor(identity)) return std::nullopt;
  auto key = DeriveKey(secret_, *ParseIdentity(identity));
  if (!key) return std::nullopt;
  return std::move(*key);
}

Result<std::shared_ptr<Link>> LinkServer::Impl::LinkFor(std::string_view identity) const {
  XMPI_ASSIGN_OR_RETURN(const KeyContext context, ParseIdentity(identity));
  auto link = Find(context.proxy);
  if (!link || context.job != options_.job || context.role != Role::kControl) {
    return Fail(ErrorCode::kRefused, std::format("{} is not expected", identity));
  }
  return link;
}

Link::Callbacks LinkServer::Impl::CallbacksFor(ProxyId proxy) {
  // The links die with this object (Stop), so their callbacks never outlive it.
  return {
      .on_message =
          [this, proxy](wire::Envelope message) { events_.on_message(proxy, std::move(message)); },
      .on_up = [this, proxy] { events_.on_up(proxy, peers_[proxy]); },
      .on_detached =
          [this, proxy](std::string reason, bool was_up) {
            if (was_up) events_.on_down(proxy, std::move(reason));
          },
      .on_lost =
          [this, proxy](Error reason) {
            Forget(proxy);
            events_.on_lost(proxy, std::move(reason));
          },
      .on_stdio_room = [this, proxy] { events_.on_stdio_room(proxy); },
      .on_closed = [this, proxy] { Forget(proxy); }};
}

void LinkServer::Impl::Expect(ProxyId proxy) {
  auto& link = links_[proxy];
  if (link) return;
  link = std::make_shared<Link>(loop_, Link::Side::kLauncher, 0, options_.timeouts,
                                CallbacksFor(proxy));
}

std::shared_ptr<Link> LinkServer::Impl::Find(ProxyId proxy) const {
  const auto found = links_.find(proxy);
  return found == links_.end() ? nullptr : found->second;
}

void LinkServer::Impl::Forget(ProxyId proxy) {
  const auto found = links_.find(proxy);
  if (found == links_.end()) return;
  const auto link = found->second;
  links_.erase(found);
  peers_.erase(proxy);
  link->Stop();
}

Result<std::unique_ptr<LinkServer>> LinkServer::Listen(asio::io_context& loop, const Secret& secret,
                                                       Options options, LinkServerEvents events) {
  auto impl = std::make_shared<Impl>(loop, secret, std::move(options), std::move(events));
  XMPI_RETURN_IF_ERROR(impl->Open());
  return std::unique_ptr<LinkServer>(new LinkServer(std::move(impl)));
}

LinkServer::LinkServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
LinkServer::~LinkServer() { impl_->Stop(); }

std::uint16_t LinkServer::port() const { return impl_->port_; }
const std::vector<std::string>& LinkServer::addresses() const { return impl_->addresses_; }
std::size_t LinkServer::strangers() const { return impl_->strangers_.size(); }
std::uint64_t LinkServer::refused() const { return impl_->refused_; }

void LinkServer::Expect(ProxyId proxy) { impl_->Expect(proxy); }
void LinkServer::Forget(ProxyId proxy) { impl_->Forget(proxy); }

void LinkServer::Close(ProxyId proxy, std::string_view reason) {
  const auto link = impl_->Find(proxy);
  if (!link) return;
  link->Close(reason);
  link->StartClock();
}

Result<> LinkServer::Send(ProxyId proxy, const wire::Envelope& message) {
  const auto link = impl_->Find(proxy);
  if (!link) return Fail(std::format("no link to proxy {}", ToString(proxy)));
  return link->Send(wire::Channel::kControl, message);
}

Result<> LinkServer::SendStdio(ProxyId proxy, const wire::Envelope& message) {
  const auto link = impl_->Find(proxy);
  if (!link) return Fail(std::format("no link to proxy {}", ToString(proxy)));
  return link->Send(wire::Channel::kStdio, message);
}

std::int64_t LinkServer::StdioRoom(ProxyId proxy) const {
  const auto link = impl_->Find(proxy);
  return link ? link->StdioRoom() : 0;
}

void LinkServer::StdioDone(ProxyId proxy, std::size_t messages) {
  if (const auto link = impl_->Find(proxy)) link->StdioDone(messages);
}

void LinkServer::Cut(ProxyId proxy) {
  asio::post(impl_->loop_, [link = impl_->Find(proxy)] {
    if (link) link->Cut("cut on purpose");
  });
}

}  // namespace xmpi::os
