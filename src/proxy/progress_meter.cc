#include "proxy/progress_meter.h"

#include <algorithm>
#include <utility>

namespace xmpi::proxy {

void ProgressMeter::Begin(wire::Progress::Stage stage) {
  const std::lock_guard lock(mutex_);
  stage_ = stage;
  ranks_.clear();
  since_ = 0;
  read_at_ = Clock::now();
}

void ProgressMeter::Expect(RankId rank, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  ranks_[rank].total += bytes;
}

void ProgressMeter::Add(RankId rank, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  Bytes& of_rank = ranks_[rank];
  of_rank.done = std::min(of_rank.done + bytes, of_rank.total);  // a lane may look twice
  since_ += bytes;
}

wire::Progress ProgressMeter::Read() {
  const std::lock_guard lock(mutex_);
  wire::Progress progress;
  progress.set_stage(stage_);
  for (const auto& [rank, bytes] : ranks_) {
    wire::Progress::Rank& each = *progress.add_ranks();
    each.set_rank(rank);
    each.set_done_bytes(bytes.done);
    each.set_total_bytes(bytes.total);
  }
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - std::exchange(read_at_, now)).count();
  const auto bytes = static_cast<double>(std::exchange(since_, 0));
  if (seconds > 0) progress.set_bytes_per_s(static_cast<std::uint64_t>(bytes / seconds));
  return progress;
}

}  // namespace xmpi::proxy
