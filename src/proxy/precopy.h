// precopy: how long it is worth while to send the memory of running ranks ahead. Each round looks
// through all of it and sends what changed since the one before; what changes in the last round is
// about what is left for the dump. Pure: it is told of rounds and times, and judges.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "wire/control.pb.h"

namespace xmpi::proxy {

struct PrecopyLimits {
  std::chrono::milliseconds longest{0};
  std::optional<std::chrono::milliseconds> within{};  // until the node is gone
};

struct Round {
  std::uint64_t memory_bytes = 0;   // looked through
  std::uint64_t changed_bytes = 0;  // of them differed from what the target held
  std::uint64_t wire_bytes = 0;
  std::chrono::nanoseconds took{0};
  // What one core's work would have taken at full speed.
  std::chrono::nanoseconds looking{0};
  std::chrono::nanoseconds sending{0};
};

class Precopy {
 public:
  Precopy(PrecopyLimits limits, unsigned lanes) : limits_(limits), lanes_(lanes) {}

  void Add(const Round& round);
  // Why no further round is to come, `elapsed` after the first began; nullopt: go on.
  std::optional<std::string_view> WhyEnough(std::chrono::milliseconds elapsed) const;
  // dump, transfer and restore, if the ranks were stopped now.
  std::chrono::milliseconds PredictedMove() const;
  wire::Plan Plan(std::string_view why_ended) const;

 private:
  std::uint64_t SendRate() const;  // bytes a second

  PrecopyLimits limits_;
  unsigned lanes_;
  std::uint32_t rounds_ = 0;
  std::uint64_t wire_bytes_ = 0;
  std::chrono::nanoseconds sending_{0};
  Round before_{};  // the last but one
  Round last_{};
};

}  // namespace xmpi::proxy
