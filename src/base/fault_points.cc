#include "base/fault_points.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <format>
#include <string>

#include "base/log.h"

namespace xmpi {
namespace {

constexpr std::string_view kLauncher = "launcher";

using Armed = std::array<FaultAction, kFaultPointNames.size()>;

Armed armed{};
bool any_armed = false;

// Where the points that hold look for their release.
std::array<std::string, kFaultPointNames.size()> releases;

std::function<void()>& Cut() {
  static std::function<void()> cut;
  return cut;
}

Result<FaultAction> ParseAction(std::string_view text) {
  if (text == "error") return FaultAction::kError;
  if (text == "error-once") return FaultAction::kErrorOnce;
  if (text == "crash") return FaultAction::kCrash;
  if (text == "stall") return FaultAction::kStall;
  if (text == "cut") return FaultAction::kCut;
  if (text == "corrupt") return FaultAction::kCorrupt;
  if (text == "full") return FaultAction::kFull;
  if (text.starts_with("hold=")) return FaultAction::kHold;
  return Fail(ErrorCode::kUsage,
              std::format("XMPI_FAULT: no action '{}': use error, error-once, crash, stall, cut, "
                          "corrupt, full or hold=FILE",
                          text));
}

// Whether an item for `meant` (empty: for no one by name) arms `actor`.
bool IsMeant(std::string_view meant, std::string_view actor) {
  return meant == actor || (meant.empty() && actor != kLauncher);
}

void AwaitRelease(const std::string& file) {
  while (::access(file.c_str(), F_OK) != 0) ::usleep(2000);
}

Result<> ArmOne(std::string_view item, std::string_view actor, Armed* result) {
  const auto at = item.find('@');
  const std::string_view meant = at == std::string_view::npos ? "" : item.substr(0, at);
  if (at != std::string_view::npos) item.remove_prefix(at + 1);
  const auto colon = item.find(':');
  const std::string_view name = item.substr(0, colon);
  const auto found = std::find(kFaultPointNames.begin(), kFaultPointNames.end(), name);
  if (found == kFaultPointNames.end()) {
    return Fail(ErrorCode::kUsage, std::format("XMPI_FAULT: no fault point '{}'", name));
  }
  const std::string_view action =
      colon == std::string_view::npos ? std::string_view() : item.substr(colon + 1);
  XMPI_ASSIGN_OR_RETURN(const FaultAction parsed, ParseAction(action));
  if (!IsMeant(meant, actor)) return {};
  const auto index = static_cast<std::size_t>(found - kFaultPointNames.begin());
  (*result)[index] = parsed;
  releases[index] = action.substr(std::min(action.size(), action.find('=') + 1));
  return {};
}

}  // namespace

Result<> ArmFaults(std::string_view specification, std::string_view actor) {
  Armed result{};
  while (!specification.empty()) {
    const auto comma = specification.find(',');
    XMPI_RETURN_IF_ERROR(ArmOne(specification.substr(0, comma), actor, &result));
    specification.remove_prefix(comma == std::string_view::npos ? specification.size() : comma + 1);
  }
  armed = result;
  any_armed = std::any_of(armed.begin(), armed.end(),
                          [](FaultAction action) { return action != FaultAction::kNone; });
  return {};
}

Result<> ArmFaultsFromEnvironment(std::string_view actor) {
  const char* specification = std::getenv("XMPI_FAULT");
  return ArmFaults(specification == nullptr ? "" : specification, actor);
}

void SetFaultCut(std::function<void()> cut) { Cut() = std::move(cut); }

FaultAction ArmedAt(FaultPoint point) { return armed[static_cast<std::size_t>(point)]; }

Result<> HitFaultPoint(FaultPoint point) {
  if (!any_armed || ArmedAt(point) == FaultAction::kNone) return {};
  const std::string_view name = kFaultPointNames[static_cast<std::size_t>(point)];
  log::Warn("fault.hit", {{"point", name}});
  switch (ArmedAt(point)) {
    case FaultAction::kNone:
      return {};
    case FaultAction::kError:
      return Fail(std::format("fault point {}", name));
    case FaultAction::kErrorOnce:
      armed[static_cast<std::size_t>(point)] = FaultAction::kNone;
      return Fail(std::format("fault point {}", name));
    case FaultAction::kCrash:
      ::kill(::getpid(), SIGKILL);
      ::_exit(137);
    case FaultAction::kStall:
      for (;;) ::pause();
    case FaultAction::kHold:
      AwaitRelease(releases[static_cast<std::size_t>(point)]);
      return {};
    case FaultAction::kCorrupt:  // whom it concerns asks for it with ArmedAt
    case FaultAction::kFull:
      return {};
    case FaultAction::kCut:
      if (Cut()) Cut()();
      return {};
  }
  return {};
}

}  // namespace xmpi
