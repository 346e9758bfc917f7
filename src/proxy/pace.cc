#include "proxy/pace.h"

#include <algorithm>

namespace xmpi::proxy {

Result<> Pace::Take(std::uint64_t bytes, const StopSignal& stop) {
  const auto takes = std::chrono::nanoseconds(bytes * 1'000'000'000 / bytes_per_s_);
  Clock::time_point due;
  {
    const std::lock_guard lock(mutex_);
    due_ = std::max(due_, Clock::now()) + takes;
    due = due_;
  }
  return stop.WaitUntil(due);
}

}  // namespace xmpi::proxy
