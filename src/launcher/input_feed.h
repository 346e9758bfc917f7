// Our standard input on its way to the rank that takes it: at most kWindowBytes are read and not
// yet in that rank's pipe, and nothing is sent while its slot is moving. Runs on the loop.
#pragma once

#include <asio.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "launcher/input_reader.h"

namespace xmpi::launcher {

class InputFeed {
 public:
  static constexpr std::size_t kWindowBytes = 64u << 10;

  // `send(data, end)` passes it to whoever holds the slot now.
  InputFeed(asio::io_context& loop, int fd, std::function<void(std::string, bool)> send);

  // Nothing is read before.
  void Start();
  void Hold(bool hold);
  // So many bytes more have been taken from us for good.
  void OnTaken(std::uint64_t bytes);

 private:
  void OnInput(std::string data, bool end);
  void SendIfFree();

  asio::io_context& loop_;
  const int fd_;
  std::function<void(std::string, bool)> send_;
  std::optional<InputReader> reader_;
  std::string held_;
  bool ended_ = false;
  bool end_sent_ = false;
  bool hold_ = false;
  std::uint64_t outstanding_ = 0;
};

}  // namespace xmpi::launcher
