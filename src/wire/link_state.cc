#include "wire/link_state.h"

#include <algorithm>
#include <format>

#include "base/check.h"
#include "base/limits.h"

namespace xmpi::wire {

void LinkState::Append(Outbox* outbox, FrameKind kind, std::string_view payload) {
  std::string frame;
  frame.reserve(kFrameHeaderBytes + payload.size());
  AppendFrame(kind, outbox->first + outbox->frames.size(), payload, &frame);
  outbox->bytes += frame.size();
  outbox->frames.push_back(std::move(frame));
}

void LinkState::DropUpTo(Outbox* outbox, std::uint64_t number) {
  while (outbox->first <= number) {
    XMPI_CHECK(!outbox->frames.empty());
    const std::size_t size = outbox->frames.front().size();
    if (outbox->first < outbox->next) outbox->in_flight -= size;
    outbox->bytes -= size;
    outbox->frames.pop_front();
    ++outbox->first;
  }
  outbox->next = std::max(outbox->next, outbox->first);
}

void LinkState::Rewind(Outbox* outbox, std::uint64_t next) {
  outbox->next = next;
  outbox->in_flight = 0;
  for (std::uint64_t i = outbox->first; i < next; ++i) {
    outbox->in_flight += outbox->frames[i - outbox->first].size();
  }
}

std::string LinkState::TakeFrame(Outbox* outbox, std::string out) {
  const std::string& frame = outbox->frames[outbox->next - outbox->first];
  out.append(frame);
  outbox->in_flight += frame.size();
  outbox->highest_sent = std::max(outbox->highest_sent, outbox->next);
  ++outbox->next;
  return out;
}

Result<> LinkState::Send(Channel channel, std::string_view payload) {
  if (closing_ || bye_) return Fail(ErrorCode::kUnreachable, "the link is closed");
  const bool control = channel == Channel::kControl;
  const FrameKind kind = control ? FrameKind::kControl : FrameKind::kStdio;
  Outbox& outbox = control ? control_ : stdio_;
  if (payload.size() > PayloadLimit(kind)) {
    return Fail(std::format("message of {} bytes, limit {}", payload.size(), PayloadLimit(kind)));
  }
  const std::size_t limit = control ? limits::kControlBacklogBytes : limits::kStdioBacklogBytes;
  if (outbox.bytes + kFrameHeaderBytes + payload.size() > limit) {
    return Fail(std::format("{} bytes wait for the peer, limit {}", outbox.bytes, limit));
  }
  Append(&outbox, kind, payload);
  return {};
}

std::int64_t LinkState::StdioRoom() const {
  return static_cast<std::int64_t>(limits::kStdioWindowBytes) -
         static_cast<std::int64_t>(stdio_.bytes);
}

void LinkState::StdioDone(std::size_t messages) {
  XMPI_CHECK(messages <= undone_.size());
  for (std::size_t i = 0; i < messages; ++i) {
    undone_bytes_ -= undone_.front();
    undone_.pop_front();
    ++received_.stdio_done;
  }
  if (messages > 0) ack_due_ = true;
}

void LinkState::Close(std::string_view reason) {
  if (!closing_) closing_ = std::string(reason.substr(0, limits::kReasonBytes));
}

void LinkState::OnConnect() {
  OnDisconnect();
  connected_ = true;
  hello_due_ = true;
}

void LinkState::OnDisconnect() {
  connected_ = greeted_ = hello_due_ = ack_due_ = bye_sent_ = false;
  ping_.reset();
  pong_.reset();
}

Result<> LinkState::OnReceived(const Received& received, bool hello) {
  // Within what was sent, and never backwards: what it once had, we no longer hold.
  const bool sane =
      received.control <= control_.highest_sent && received.stdio <= stdio_.highest_sent &&
      received.stdio_done <= received.stdio && received.control >= peer_has_.control &&
      received.stdio >= peer_has_.stdio && received.stdio_done >= peer_has_.stdio_done;
  if (!sane) {
    return Fail(ErrorCode::kProtocol,
                std::format("the peer says it has control {} stdio {}/{}, of {} and {} sent",
                            received.control, received.stdio_done, received.stdio,
                            control_.highest_sent, stdio_.highest_sent));
  }
  peer_has_ = received;
  DropUpTo(&control_, received.control);
  DropUpTo(&stdio_, received.stdio_done);
  if (hello) {
    Rewind(&control_, received.control + 1);
    Rewind(&stdio_, received.stdio + 1);
  }
  return {};
}

Result<> LinkState::OnHello(const Frame& frame) {
  if (greeted_) return Fail(ErrorCode::kProtocol, "a second hello on one connection");
  if (frame.number == 0) return Fail(ErrorCode::kProtocol, "a hello without session");
  if (session_ == 0) session_ = frame.number;
  if (frame.number != session_) {
    return Fail(ErrorCode::kProtocol, "the peer is not the process that this link began with");
  }
  XMPI_ASSIGN_OR_RETURN(const Received received, DecodeReceived(frame.payload));
  XMPI_RETURN_IF_ERROR(OnReceived(received, true));
  greeted_ = true;
  return {};
}

Result<std::optional<Delivery>> LinkState::OnMessage(Channel channel, Frame frame) {
  const bool control = channel == Channel::kControl;
  std::uint64_t& last = control ? received_.control : received_.stdio;
  if (frame.number <= last) {
    ++duplicates_;
    return std::nullopt;
  }
  if (frame.number != last + 1) {
    return Fail(
        ErrorCode::kProtocol,
        std::format("{} message {} after {}", control ? "control" : "stdio", frame.number, last));
  }
  if (!control) {
    const std::size_t size = kFrameHeaderBytes + frame.payload.size();
    // The sender stops once the window is full, so it overshoots by less than one message.
    if (undone_bytes_ >= limits::kStdioWindowBytes) {
      return Fail(ErrorCode::kProtocol, "more stdio than the window allows");
    }
    undone_.push_back(size);
    undone_bytes_ += size;
  }
  ++last;
  ack_due_ = true;
  return Delivery{channel, std::move(frame.payload)};
}

Result<std::optional<Delivery>> LinkState::OnFrame(Frame frame) {
  XMPI_CHECK(connected_);
  if (bye_) return Fail(ErrorCode::kProtocol, "a frame after bye");
  if (!greeted_ && frame.kind != FrameKind::kHello && frame.kind != FrameKind::kBye) {
    return Fail(ErrorCode::kProtocol, "the first frame is no hello");
  }
  switch (frame.kind) {
    case FrameKind::kHello:
      XMPI_RETURN_IF_ERROR(OnHello(frame));
      return std::nullopt;
    case FrameKind::kControl:
      return OnMessage(Channel::kControl, std::move(frame));
    case FrameKind::kStdio:
      return OnMessage(Channel::kStdio, std::move(frame));
    case FrameKind::kAck: {
      XMPI_ASSIGN_OR_RETURN(const Received received, DecodeReceived(frame.payload));
      XMPI_RETURN_IF_ERROR(OnReceived(received, false));
      return std::nullopt;
    }
    case FrameKind::kPing:
      pong_ = frame.number;
      return std::nullopt;
    case FrameKind::kPong:
      last_pong_ = frame.number;
      return std::nullopt;
    case FrameKind::kBye:
      bye_ = std::move(frame.payload);
      return std::nullopt;
  }
  return std::nullopt;
}

std::string LinkState::TakeWrite(std::size_t budget) {
  std::string out;
  if (!connected_ || bye_sent_ || session_ == 0) return out;
  if (hello_due_) {
    AppendFrame(FrameKind::kHello, session_, EncodeReceived(received_), &out);
    hello_due_ = ack_due_ = false;
  }
  if (!greeted_) return out;
  if (pong_) AppendFrame(FrameKind::kPong, *pong_, {}, &out);
  if (ping_) AppendFrame(FrameKind::kPing, *ping_, {}, &out);
  pong_.reset();
  ping_.reset();
  if (ack_due_) AppendFrame(FrameKind::kAck, 0, EncodeReceived(received_), &out);
  ack_due_ = false;
  while (HasUnsent(control_) && out.size() < budget) out = TakeFrame(&control_, std::move(out));
  while (HasUnsent(stdio_) && out.size() < budget && !HasUnsent(control_) &&
         stdio_.in_flight < limits::kStdioWindowBytes) {
    out = TakeFrame(&stdio_, std::move(out));
  }
  if (closing_ && !HasUnsent(control_) && !HasUnsent(stdio_)) {
    AppendFrame(FrameKind::kBye, 0, *closing_, &out);
    bye_sent_ = true;
  }
  return out;
}

bool LinkState::Flushed() const {
  return control_.frames.empty() && stdio_.frames.empty() && (!closing_ || bye_sent_);
}

}  // namespace xmpi::wire
