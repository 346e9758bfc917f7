// EventQueue: simulated time and what happens in it. Events at the same time run in the order in
// which they were made, so a run depends on nothing but its seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace xmpi::sim {

using Time = std::int64_t;  // microseconds since the run began

inline constexpr Time kMs = 1000;
inline constexpr Time kSecond = 1000 * kMs;

class EventQueue {
 public:
  Time now() const { return now_; }
  std::uint64_t events() const { return events_; }
  std::size_t waiting() const { return heap_.size(); }

  void At(Time time, std::function<void()> run) {
    heap_.push_back({std::max(time, now_), next_++, std::move(run)});
    std::ranges::push_heap(heap_, Later);
  }
  void After(Time delay, std::function<void()> run) { At(now_ + delay, std::move(run)); }

  // Runs the next event; false if there is none.
  bool RunOne() {
    if (heap_.empty()) return false;
    std::ranges::pop_heap(heap_, Later);
    const Event event = std::move(heap_.back());
    heap_.pop_back();
    now_ = event.time;
    ++events_;
    event.run();
    return true;
  }

 private:
  struct Event {
    Time time = 0;
    std::uint64_t number = 0;
    std::function<void()> run;
  };
  static bool Later(const Event& a, const Event& b) {
    return std::pair(a.time, a.number) > std::pair(b.time, b.number);
  }

  std::vector<Event> heap_;
  Time now_ = 0;
  std::uint64_t next_ = 0;
  std::uint64_t events_ = 0;
};

}  // namespace xmpi::sim
