// Link: what both ends of a link share: a wire::LinkState, the connection that carries it at the
// moment, the loops that read and write it, pings, and the decision that the peer is lost. How a
// connection comes about is the business of LinkServer and LinkClient. Internal to src/os.
//
// One thread, one io_context. Owned by shared_ptr; its coroutines keep it alive until Stop.
#pragma once

#include <asio.hpp>
#include <asio/ssl.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/limits.h"
#include "wire/control.pb.h"
#include "wire/frame.h"
#include "wire/link_state.h"

namespace xmpi::os {

using TlsStream = asio::ssl::stream<asio::ip::tcp::socket>;

// Small messages at once, dead peers noticed, and little stdio in the kernel ahead of control.
void SetLinkOptions(asio::ip::tcp::socket& socket, const LinkTimeouts& timeouts);

// Why an operation on `stream` failed.
Error StreamFailure(TlsStream& stream, std::string_view what, const asio::error_code& error);

// The numeric address, IPv4 as IPv4 also on a socket for both.
std::string AddressText(const asio::ip::address& address);

class Link : public std::enable_shared_from_this<Link> {
 public:
  enum class Side { kLauncher, kProxy };
  struct Callbacks {
    std::function<void(wire::Envelope)> on_message;
    std::function<void()> on_up;
    // `was_up`: on_up had been called for this connection.
    std::function<void(std::string reason, bool was_up)> on_detached;
    std::function<void(Error)> on_lost;
    std::function<void()> on_stdio_room;
    std::function<void()> on_closed;  // after Close, when the peer has it all or is gone
  };

  Link(asio::io_context& loop, Side side, std::uint64_t session, const LinkTimeouts& timeouts,
       Callbacks callbacks);

  // The clock of the silence starts: at a proxy's start, at a launcher's first connection.
  void StartClock();
  // An authenticated connection, with what was read of it already. Replaces an older one.
  void Attach(std::unique_ptr<TlsStream> stream, wire::FrameDecoder decoder);
  // Whether a connection that says hello under `session` may be attached.
  bool Accepts(std::uint64_t session) const {
    return !stopped_ && (state_.session() == 0 || state_.session() == session);
  }

  Result<> Send(wire::Channel channel, const wire::Envelope& message);
  std::int64_t StdioRoom() const { return state_.StdioRoom(); }
  void StdioDone(std::size_t messages);

  void Cut(std::string_view reason);
  void Close(std::string_view reason);
  // Declares the peer lost: callback on_lost, then nothing more.
  void Lose(Error reason);
  // Drops everything; no callback follows. Safe inside a callback.
  void Stop();
  bool up() const { return up_; }
  bool stopped() const { return stopped_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection;

  static asio::awaitable<void> ReadLoop(std::shared_ptr<Link> self,
                                        std::shared_ptr<Connection> connection);
  static asio::awaitable<void> WriteLoop(std::shared_ptr<Link> self,
                                         std::shared_ptr<Connection> connection);
  static asio::awaitable<void> WatchSilence(std::shared_ptr<Link> self);

  // Handles the frames at hand; false when the connection is no longer ours.
  bool HandleFrames(const std::shared_ptr<Connection>& connection);
  Result<> HandleFrame(wire::Frame frame);
  void OnGreeted(Connection* connection);
  void NotePong();
  void Detach(const std::string& reason);
  void Wake();
  void OfferStdioRoom();
  void PingIfDue(Clock::time_point now);
  Clock::time_point NextLook() const;
  std::chrono::milliseconds SilenceLimit() const;
  void FinishClose();

  asio::io_context& loop_;
  const Side side_;
  const LinkTimeouts timeouts_;
  Callbacks callbacks_;
  wire::LinkState state_;
  std::shared_ptr<Connection> connection_;
  asio::steady_timer watch_;
  bool watching_ = false;
  bool up_ = false;
  bool stopped_ = false;
  bool closing_ = false;
  bool room_wanted_ = false;

  // Launcher: when the proxy was last heard. Proxy: the latest moment of which it is known that
  // the launcher heard us after it (the sending of a ping that was answered).
  Clock::time_point heard_;
  Clock::time_point pinged_;
  std::uint64_t ping_ = 0;
  Clock::time_point ping_times_[16] = {};  // by ping number modulo 16
};

}  // namespace xmpi::os
