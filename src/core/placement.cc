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
    if (contains(question.tried, question.wanted))
      return Fail(ErrorCode::kRefused, std::format("{} could not take them", question.wanted));
    return question.wanted;
  }
  for (const std::string& spare : question.spares) {
    if (spare != question.from && !contains(question.in_use, spare) &&
        !contains(question.tried, spare))
      return spare;
  }
  return Fail(ErrorCode::kRefused,
              question.spares.empty()
                  ? "the job has no spare node; start it with -spares or name a target with --to"
                  : "no spare node is left; name a target with --to");
}

}  // namespace xmpi::core
