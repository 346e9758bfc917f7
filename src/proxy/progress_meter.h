// ProgressMeter: how far a transfer is, by rank, for whoever waits for it. Counted on the lanes'
// threads, read on another.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>

#include "base/ids.h"
#include "wire/control.pb.h"

namespace xmpi::proxy {

class ProgressMeter {
 public:
  // Counts anew.
  void Begin(wire::Progress::Stage stage);
  void Expect(RankId rank, std::uint64_t bytes);
  void Add(RankId rank, std::uint64_t bytes);
  // With the rate since the last time.
  wire::Progress Read();

 private:
  using Clock = std::chrono::steady_clock;
  struct Bytes {
    std::uint64_t done = 0;
    std::uint64_t total = 0;
  };

  std::mutex mutex_;
  wire::Progress::Stage stage_ = wire::Progress::PRECOPY;
  std::map<RankId, Bytes> ranks_;
  std::uint64_t since_ = 0;  // bytes added since the last Read
  Clock::time_point read_at_ = Clock::now();
};

}  // namespace xmpi::proxy
