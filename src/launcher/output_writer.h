// Writes bytes to one of our own outputs from a thread of its own, so that a reader who stalls
// never stops the event loop, and without O_NONBLOCK, which other programs that share the output
// would see. Everything else happens on the loop's thread: Write, and the callbacks.
//
// A broken output is told once; after that everything counts as written and is dropped.
#pragma once

#include <asio.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace xmpi::launcher {

class OutputWriter {
 public:
  // `written(n)`: the n-th Write and all before it are out of our hands. `broken(errno)`.
  OutputWriter(asio::io_context& loop, int fd, std::function<void(std::uint64_t)> written,
               std::function<void(int)> broken);
  // Does not wait: what is not written by then may be lost. No callback follows.
  ~OutputWriter();

  // Returns the number of this Write, from 1.
  std::uint64_t Write(std::string bytes);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace xmpi::launcher
