// Brings the output of many ranks into one stream without mixing within a line, with `[RANK] ` in
// front of each line if wanted. Pure: bytes in, bytes out; the caller writes them and keeps time.
//
// Without labels not a byte is added, dropped or reordered within a rank. A line waits for its
// newline, but not for ever: it goes on unfinished when it is longer than kLongLineBytes, when its
// stream ends, and when it has not grown between two ticks (a prompt).
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"

namespace xmpi::launcher {

class LineMerger {
 public:
  static constexpr std::size_t kLongLineBytes = 64u << 10;

  explicit LineMerger(bool label) : label_(label) {}

  // Each appends to `out` what may be written now.
  void Add(RankId rank, std::string_view data, std::string* out);
  void End(RankId rank, std::string* out);
  void EndAll(std::string* out);
  // To be called at a steady pace while WantsTick.
  void Tick(std::string* out);
  bool WantsTick() const { return unfinished_ > 0; }

 private:
  struct Line {
    std::string held;
    bool grown = false;  // since the last tick
  };

  void Release(RankId rank, Line& line, std::string* out);
  void Emit(RankId rank, std::string_view text, std::string* out);

  const bool label_;
  std::map<RankId, Line> lines_;
  std::size_t unfinished_ = 0;  // lines with something held
  std::optional<RankId> open_;  // labels: whose unfinished line the output ends with
};

}  // namespace xmpi::launcher
