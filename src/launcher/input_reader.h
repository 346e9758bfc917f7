// Reads our own standard input from a thread of its own: files, pipes and terminals alike, without
// changing how others who share it see it. Reads only what it was given room for. In the background
// of a terminal it waits to come to the front rather than being stopped.
//
// Room, and the callback, belong to the loop's thread.
#pragma once

#include <asio.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace xmpi::launcher {

class InputReader {
 public:
  // `on_input(data, end)`; nothing follows an `end`. A closed input ends at once.
  InputReader(asio::io_context& loop, int fd, std::function<void(std::string, bool)> on_input);
  ~InputReader();

  // So many bytes more may be read.
  void GiveRoom(std::size_t bytes);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace xmpi::launcher
