#include "proxy/precopy.h"

#include <algorithm>
#include <string>

namespace xmpi::proxy {
namespace {

using std::chrono::milliseconds;

// Past these another round gains nothing worth its cost.
constexpr std::uint32_t kMostRounds = 8;
constexpr std::uint64_t kFewBytes = 4u << 20;
constexpr std::uint64_t kMemoriesToSend = 3;  // in all rounds together
// What a move takes whatever the ranks' size, and what quiesce and reconnect take beside it.
constexpr milliseconds kMoveOverhead{300};
constexpr milliseconds kAroundTheMove{2000};

}  // namespace

void Precopy::Add(const Round& round) {
  ++rounds_;
  wire_bytes_ += round.wire_bytes;
  sending_ += round.sending;
  before_ = last_;
  last_ = round;
}

std::optional<std::string_view> Precopy::WhyEnough(milliseconds elapsed) const {
  const auto next = std::chrono::duration_cast<milliseconds>(last_.took);
  if (elapsed + next > limits_.longest) return "limit";
  if (limits_.within && elapsed + next + PredictedMove() + kAroundTheMove > *limits_.within)
    return "deadline";
  if (rounds_ == 0) return std::nullopt;
  if (last_.changed_bytes <= std::max(kFewBytes, last_.memory_bytes / 100)) return "converged";
  if (rounds_ >= kMostRounds) return "rounds";
  if (wire_bytes_ > kMemoriesToSend * last_.memory_bytes) return "budget";
  // Less than a quarter fewer than the round before: it changes as fast as it is sent.
  if (rounds_ > 1 && last_.changed_bytes > before_.changed_bytes / 4 * 3) return "converged";
  return std::nullopt;
}

std::uint64_t Precopy::SendRate() const {
  const double seconds = std::chrono::duration<double>(sending_).count() / lanes_;
  return seconds > 0 ? static_cast<std::uint64_t>(static_cast<double>(wire_bytes_) / seconds) : 0;
}

milliseconds Precopy::PredictedMove() const {
  if (rounds_ == 0) return kMoveOverhead;
  const std::uint64_t rate = std::max<std::uint64_t>(SendRate(), 1);
  const auto looking = std::chrono::duration_cast<milliseconds>(last_.looking / lanes_);
  return kMoveOverhead + looking + milliseconds(last_.changed_bytes * 1000 / rate);
}

wire::Plan Precopy::Plan(std::string_view why_ended) const {
  wire::Plan plan;
  plan.set_memory_bytes(last_.memory_bytes);
  plan.set_dirty_bytes(last_.changed_bytes);
  plan.set_sent_bytes(wire_bytes_);
  plan.set_rounds(rounds_);
  plan.set_bytes_per_s(SendRate());
  plan.set_predicted_us(static_cast<std::uint64_t>(PredictedMove().count()) * 1000);
  plan.set_why_ended(std::string(why_ended));
  return plan;
}

}  // namespace xmpi::proxy
