#include "launcher/input_feed.h"

#include <algorithm>

namespace xmpi::launcher {

InputFeed::InputFeed(asio::io_context& loop, int fd, std::function<void(std::string, bool)> send)
    : loop_(loop), fd_(fd), send_(std::move(send)) {}

void InputFeed::Start() {
  if (reader_) return;
  reader_.emplace(loop_, fd_,
                  [this](std::string data, bool end) { OnInput(std::move(data), end); });
  reader_->GiveRoom(kWindowBytes);
}

void InputFeed::Hold(bool hold) {
  hold_ = hold;
  SendIfFree();
}

void InputFeed::OnTaken(std::uint64_t bytes) {
  bytes = std::min(bytes, outstanding_);
  outstanding_ -= bytes;
  if (reader_ && !ended_) reader_->GiveRoom(bytes);
}

void InputFeed::OnInput(std::string data, bool end) {
  held_ += data;
  ended_ = ended_ || end;
  SendIfFree();
}

void InputFeed::SendIfFree() {
  if (hold_ || (held_.empty() && (!ended_ || end_sent_))) return;
  outstanding_ += held_.size();
  end_sent_ = ended_;
  send_(std::exchange(held_, {}), ended_);
}

}  // namespace xmpi::launcher
