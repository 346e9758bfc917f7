#include "base/fault_points.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <format>

#include "base/log.h"

namespace xmpi {
namespace {

using Armed = std::array<FaultAction, kFaultPointNames.size()>;

Armed armed{};
bool any_armed = false;

std::function<void()>& Cut() {
  static std::function<void()> cut;
  return cut;
}

Result<FaultAction> ParseAction(std::string_view text) {
  if (text == "error") return FaultAction::kError;
  if (text == "crash") return FaultAction::kCrash;
  if (text == "stall") return FaultAction::kStall;
  if (text == "cut") return FaultAction::kCut;
  return Fail(ErrorCode::kUsage,
              std::format("XMPI_FAULT: no action '{}': use error, crash, stall or cut", text));
}

Result<> ArmOne(std::string_view item, Armed* result) {
  const auto colon = item.find(':');
  const std::string_view name = item.substr(0, colon);
  const auto found = std::find(kFaultPointNames.begin(), kFaultPointNames.end(), name);
  if (found == kFaultPointNames.end()) {
    return Fail(ErrorCode::kUsage, std::format("XMPI_FAULT: no fault point '{}'", name));
  }
  const std::string_view action =
      colon == std::string_view::npos ? std::string_view() : item.substr(colon + 1);
  XMPI_ASSIGN_OR_RETURN((*result)[static_cast<std::size_t>(found - kFaultPointNames.begin())],
                        ParseAction(action));
  return {};
}

}  // namespace

Result<> ArmFaults(std::string_view specification) {
  Armed result{};
  while (!specification.empty()) {
    const auto comma = specification.find(',');
    XMPI_RETURN_IF_ERROR(ArmOne(specification.substr(0, comma), &result));
    specification.remove_prefix(comma == std::string_view::npos ? specification.size() : comma + 1);
  }
  armed = result;
  any_armed = std::any_of(armed.begin(), armed.end(),
                          [](FaultAction action) { return action != FaultAction::kNone; });
  return {};
}

Result<> ArmFaultsFromEnvironment() {
  const char* specification = std::getenv("XMPI_FAULT");
  return ArmFaults(specification == nullptr ? "" : specification);
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
    case FaultAction::kCrash:
      ::kill(::getpid(), SIGKILL);
      ::_exit(137);
    case FaultAction::kStall:
      for (;;) ::pause();
    case FaultAction::kCut:
      if (Cut()) Cut()();
      return {};
  }
  return {};
}

}  // namespace xmpi
