// Pace: so many bytes a second and no more, shared by the threads that do the work.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

#include "base/error.h"
#include "proxy/image_socket.h"

namespace xmpi::proxy {

class Pace {
 public:
  explicit Pace(std::uint64_t bytes_per_s) : bytes_per_s_(bytes_per_s) {}

  // Waits until these are due; kRefused once stopped.
  Result<> Take(std::uint64_t bytes, const StopSignal& stop);

 private:
  using Clock = std::chrono::steady_clock;

  const std::uint64_t bytes_per_s_;
  std::mutex mutex_;
  Clock::time_point due_{};
};

}  // namespace xmpi::proxy
