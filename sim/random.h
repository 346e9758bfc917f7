// Random: the simulator's only source of chance. One 64-bit state, the same numbers on every
// machine and compiler (the standard distributions promise no such thing). Fork gives a stream of
// its own to each purpose, so that taking a fault out of a run disturbs the rest little.
#pragma once

#include <cstdint>

namespace xmpi::sim {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t Next() {  // splitmix64, public domain
    state_ += 0x9e3779b97f4a7c15u;
    return Mix(state_);
  }
  // 0 .. n-1; n > 0.
  std::uint64_t Below(std::uint64_t n) { return Next() % n; }
  // low .. high, both included.
  std::int64_t Between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(Below(static_cast<std::uint64_t>(high - low) + 1));
  }
  bool Percent(unsigned percent) { return Below(100) < percent; }

  Random Fork(std::uint64_t purpose) const { return Random(Mix(state_ ^ Mix(purpose + 1))); }

 private:
  static std::uint64_t Mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  std::uint64_t state_;
};

}  // namespace xmpi::sim
