#include "os/link_client.h"

#include <algorithm>
#include <format>
#include <optional>
#include <random>

#include "base/log.h"
#include "os/dial.h"
#include "os/link.h"
#include "os/tls.h"

namespace xmpi::os {
namespace {

constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);
constexpr int kMostPauses = 16;

std::uint64_t NewSession() {
  std::random_device random;
  const std::uint64_t session = std::uint64_t{random()} << 32 | random();
  return session == 0 ? 1 : session;
}

}  // namespace

class LinkClient::Impl : public std::enable_shared_from_this<LinkClient::Impl> {
 public:
  Impl(asio::io_context& loop, TlsContext tls, Options options, LinkClientEvents events)
      : loop_(loop),
        tls_(std::move(tls)),
        options_(std::move(options)),
        events_(std::move(events)),
        detached_(loop) {}

  void Start() {
    link_ = std::make_shared<Link>(loop_, Link::Side::kProxy, NewSession(), options_.timeouts,
                                   MakeCallbacks());
    link_->StartClock();
    asio::co_spawn(loop_, DialLoop(shared_from_this()), asio::detached);
  }
  void Stop() {
    link_->Stop();
    detached_.cancel();
  }

  asio::io_context& loop_;
  std::shared_ptr<Link> link_;
  std::function<void()> closed_;

 private:
  static asio::awaitable<void> DialLoop(std::shared_ptr<Impl> self);
  asio::awaitable<void> WaitDetached();
  Link::Callbacks MakeCallbacks();
  // Whether the Error of a dial says that the launcher is gone for good.
  bool IsFinal(const Error& error) const { return error.code == ErrorCode::kRefused; }

  const TlsContext tls_;
  Options options_;
  const LinkClientEvents events_;
  asio::steady_timer detached_;  // cancelled when the connection is gone
  std::string local_;
  std::string dial_failure_;  // of the latest dial, if it failed
  bool attached_ = false;
};

Link::Callbacks LinkClient::Impl::MakeCallbacks() {
  // The link dies with this object (Stop), so its callbacks never outlive it.
  return {.on_message = [this](wire::Envelope message) { events_.on_message(std::move(message)); },
          .on_up = [this] { events_.on_up(local_); },
          .on_detached =
              [this](std::string reason, bool was_up) {
                attached_ = false;
                detached_.cancel();
                if (was_up) events_.on_down(std::move(reason));
              },
          .on_lost =
              [this](Error reason) {
                detached_.cancel();
                if (!dial_failure_.empty()) reason.message += "; the last dial: " + dial_failure_;
                events_.on_lost(std::move(reason));
              },
          .on_stdio_room = [this] { events_.on_stdio_room(); },
          .on_closed =
              [this] {
                detached_.cancel();
                if (closed_) closed_();
              }};
}

asio::awaitable<void> LinkClient::Impl::WaitDetached() {
  while (attached_ && !link_->stopped()) {
    detached_.expires_at(asio::steady_timer::time_point::max());
    co_await detached_.async_wait(kNoThrow);
  }
}

asio::awaitable<void> LinkClient::Impl::DialLoop(std::shared_ptr<Impl> self) {
  int pauses = 0;
  while (!self->link_->stopped()) {
    auto dialled = co_await Dial(self->tls_, self->options_.addresses, self->options_.port,
                                 self->options_.timeouts);
    if (self->link_->stopped()) co_return;
    self->dial_failure_ = dialled || self->IsFinal(dialled.error()) ? "" : dialled.error().message;
    if (dialled) {
      // From now on only this address is the launcher: the others may belong to other hosts.
      self->options_.addresses = {dialled->address};
      self->local_ = dialled->local;
      self->attached_ = true;
      self->link_->Attach(std::move(dialled->stream), {});
      const auto attached = std::chrono::steady_clock::now();
      co_await self->WaitDetached();
      // A connection that did not last must not be redialled in a tight loop.
      if (std::chrono::steady_clock::now() - attached >= self->options_.timeouts.ping_interval) {
        pauses = 0;
      }
    } else if (self->IsFinal(dialled.error())) {
      self->link_->Lose(WithContext("the launcher refuses connections", dialled.error()));
      co_return;
    } else {
      log::Info("link.dial", {{"error", dialled.error().message}});
    }
    if (pauses > 0 && !self->link_->stopped()) {
      self->detached_.expires_after(self->options_.timeouts.redial_pause * pauses);
      co_await self->detached_.async_wait(kNoThrow);
    }
    pauses = std::clamp(pauses * 2, 1, kMostPauses);
  }
}

Result<std::unique_ptr<LinkClient>> LinkClient::Start(asio::io_context& loop, const Secret& secret,
                                                      Options options, LinkClientEvents events) {
  if (options.addresses.empty()) return Fail("the launcher has no address");
  const KeyContext context{options.job, options.proxy, Role::kControl};
  XMPI_ASSIGN_OR_RETURN(Secret key, DeriveKey(secret, context));
  XMPI_ASSIGN_OR_RETURN(TlsContext tls, TlsContext::Client(Identity(context), std::move(key)));
  auto impl = std::make_shared<Impl>(loop, std::move(tls), std::move(options), std::move(events));
  impl->Start();
  return std::unique_ptr<LinkClient>(new LinkClient(std::move(impl)));
}

LinkClient::LinkClient(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
LinkClient::~LinkClient() { impl_->Stop(); }

Result<> LinkClient::Send(const wire::Envelope& message) {
  return impl_->link_->Send(wire::Channel::kControl, message);
}
Result<> LinkClient::SendStdio(const wire::Envelope& message) {
  return impl_->link_->Send(wire::Channel::kStdio, message);
}
std::int64_t LinkClient::StdioRoom() const { return impl_->link_->StdioRoom(); }
void LinkClient::StdioDone(std::size_t messages) { impl_->link_->StdioDone(messages); }

void LinkClient::Close(std::string_view reason, std::function<void()> closed) {
  impl_->closed_ = std::move(closed);
  impl_->link_->Close(reason);
}

void LinkClient::Cut() {
  asio::post(impl_->loop_, [link = impl_->link_] { link->Cut("cut on purpose"); });
}

}  // namespace xmpi::os
