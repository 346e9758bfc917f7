// Duplex: the proxy's end of one socket to a rank (control packets or the PMI stream) on the event
// loop. It owns the socket, writes in order and keeps what does not fit. Callbacks come from the
// loop or from ReadNow, and may call anything here, Close too. It never closes by itself: at the
// end of the stream it stops reading and says so once.
#pragma once

#include <asio.hpp>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/fd.h"

namespace xmpi::proxy {

class Duplex : public std::enable_shared_from_this<Duplex> {
 public:
  // One packet, or whatever a stream had; then, once, an empty view for its end.
  using OnRead = std::function<void(std::string_view)>;

  static std::shared_ptr<Duplex> Open(asio::io_context& loop, Fd socket, OnRead on_read);

  // Kept until the rank reads; dropped when it is gone.
  void Write(std::string bytes);
  // Delivers all that has been sent so far.
  void ReadNow();
  void Close();

 private:
  Duplex(asio::io_context& loop, Fd socket, OnRead on_read);
  void AwaitReadable();
  void AwaitWritable();
  void Flush();

  asio::posix::stream_descriptor socket_;
  OnRead on_read_;
  std::deque<std::string> outgoing_;
  std::size_t written_ = 0;  // of outgoing_.front(); packets go whole
  bool awaiting_writable_ = false;
  bool ended_ = false;
};

}  // namespace xmpi::proxy
