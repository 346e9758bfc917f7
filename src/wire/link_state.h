// LinkState: one end of the link between the launcher and a proxy, as an engine without IO. It
// outlives connections: it numbers what is sent, keeps it until the peer has it, replays after a
// redial and drops nothing and doubles nothing across any number of cuts.
//
// Two channels with numbers of their own. Control frames always go before queued stdio frames.
// Stdio is bounded by a window: at most kStdioWindowBytes sent and not yet written out by the
// peer; the receiver says StdioDone when a message's bytes have left its hands.
//
// The caller owns connections, clocks and timers: it passes frames in, takes bytes out, and says
// when a connection begins and ends. An Error from OnFrame means that the peer broke the protocol;
// the connection must then be closed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "wire/frame.h"

namespace xmpi::wire {

enum class Channel { kControl, kStdio };

struct Delivery {
  Channel channel = Channel::kControl;
  std::string payload;
};

class LinkState {
 public:
  // `session` names the link for its life, so that no other process can take the seat by redial.
  // The end that is dialled passes 0 and takes the session of the first hello.
  explicit LinkState(std::uint64_t session) : session_(session) {}

  // Queues a message; it is sent when there is a connection, and again after each cut until the
  // peer has it. Fails when the message or the backlog is too large; nothing is queued then.
  Result<> Send(Channel channel, std::string_view payload);

  // Free bytes of the stdio window; at 0 or less the caller stops reading what it would send.
  std::int64_t StdioRoom() const;
  // The oldest `messages` delivered stdio messages have been written out.
  void StdioDone(std::size_t messages);
  // Ends the link in order: everything queued is sent first, then `reason`.
  void Close(std::string_view reason);

  // 0 until the dialled end has had its first hello.
  std::uint64_t session() const { return session_; }

  // A new connection stands; the next bytes taken begin with our hello.
  void OnConnect();
  void OnDisconnect();
  bool connected() const { return connected_; }
  // True once the peer's hello of this connection has come.
  bool greeted() const { return greeted_; }

  // Takes one frame from the peer. Gives a message when the frame was a new one.
  Result<std::optional<Delivery>> OnFrame(Frame frame);
  // Queues a ping ahead of everything; its number comes back by last_pong().
  void Ping(std::uint64_t number) { ping_ = number; }
  std::uint64_t last_pong() const { return last_pong_; }
  // Set once the peer said bye.
  const std::optional<std::string>& bye() const { return bye_; }

  // The bytes to send next, about `budget` of them at most (one frame can exceed it); empty when
  // there is nothing to send now.
  std::string TakeWrite(std::size_t budget);
  // Everything queued has reached the peer, and Close's reason has been handed out.
  bool Flushed() const;
  bool ClosedByUs() const { return bye_sent_; }

  std::uint64_t duplicates() const { return duplicates_; }

 private:
  struct Outbox {
    std::deque<std::string> frames;  // encoded, oldest first
    std::uint64_t first = 1;         // number of frames.front()
    std::uint64_t next = 1;          // number of the first frame not yet sent on this connection
    std::uint64_t highest_sent = 0;  // on any connection
    std::size_t bytes = 0;           // of all frames
    std::size_t in_flight = 0;       // of the frames in front of `next`
  };

  static void Append(Outbox* outbox, FrameKind kind, std::string_view payload);
  static void DropUpTo(Outbox* outbox, std::uint64_t number);
  static void Rewind(Outbox* outbox, std::uint64_t next);
  static std::string TakeFrame(Outbox* outbox, std::string out);
  static bool HasUnsent(const Outbox& outbox) {
    return outbox.next < outbox.first + outbox.frames.size();
  }

  Result<> OnHello(const Frame& frame);
  Result<> OnReceived(const Received& received, bool hello);
  Result<std::optional<Delivery>> OnMessage(Channel channel, Frame frame);

  std::uint64_t session_;
  bool connected_ = false;
  bool greeted_ = false;
  bool hello_due_ = false;
  bool ack_due_ = false;
  std::optional<std::uint64_t> ping_;
  std::optional<std::uint64_t> pong_;
  std::uint64_t last_pong_ = 0;
  std::optional<std::string> closing_;
  bool bye_sent_ = false;
  std::optional<std::string> bye_;
  std::uint64_t duplicates_ = 0;

  Outbox control_;
  Outbox stdio_;
  Received peer_has_;               // as the peer last said
  Received received_;               // ours, what we tell the peer
  std::deque<std::size_t> undone_;  // sizes of delivered stdio messages not yet written out
  std::size_t undone_bytes_ = 0;
};

}  // namespace xmpi::wire
