#include "core/placement.h"

#include <algorithm>
#include <format>

namespace xmpi::core {

Result<std::string> ChooseTarget(const PlacementQuestion& question) {
  const auto contains = [](std::span<const std::string> nodes, const std::string& node) {
    return std::ranges::find(nodes, node) != nodes.end();
  };
  if (!question.wanted.empty()) {
    if (question.wanted == question.from)
      return Fail(ErrorCode::kRefused,
                  std::format("the ranks are on {} already; name another target", question.from));
    if (contains(question.avoid, question.wanted))
      return Fail(ErrorCode::kRefused, std::format("{} could not take them", question.wanted));
    return question.wanted;
  }
  const std::string* best = nullptr;
  std::ptrdiff_t fewest = 0;
  for (const std::string& spare : question.spares) {
    if (spare == question.from || contains(question.avoid, spare)) continue;
    const std::ptrdiff_t seats = std::ranges::count(question.seats, spare);
    if (best != nullptr && seats >= fewest) continue;
    best = &spare;
    fewest = seats;
  }
  if (best != nullptr) return *best;
  return Fail(ErrorCode::kRefused,
              question.spares.empty()
                  ? "the job has no spare node; start it with -spares or name a target with --to"
                  : "no spare node is left; name a target with --to");
}

}  // namespace xmpi::core
