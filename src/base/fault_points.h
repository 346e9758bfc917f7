// Fault points: named places, before and after each phase, where a test can make a program fail.
// Armed by the environment, XMPI_FAULT=[actor@]point:action[,...]; unarmed they cost one load. The
// actor is `launcher` or a node's name (its proxies); without one every proxy is meant.
// A point is an expression of type Result<>: XMPI_RETURN_IF_ERROR(FAULT_POINT("dump.before")).
//   error  the point returns an Error          crash  the process dies as by kill -9
//   stall  the process stops answering         cut    the connections of the process are dropped
//   error-once  an Error for the first who comes
//   hold=FILE  it stops answering until FILE is there, so that a test can do something just then
//   corrupt    what is sent there is damaged (image data; nothing elsewhere)
//   full       there is hardly any room for what is kept there (images; nothing elsewhere)
// The name is checked by the compiler: an unknown one does not build.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string_view>

#include "base/error.h"

namespace xmpi {

#define XMPI_FAULT_POINTS(X)              \
  X(kPrepareBefore, "prepare.before")     \
  X(kPrepareAfter, "prepare.after")       \
  X(kQuiesceBefore, "quiesce.before")     \
  X(kQuiesceAfter, "quiesce.after")       \
  X(kDumpBefore, "dump.before")           \
  X(kDumpAfter, "dump.after")             \
  X(kTransferBefore, "transfer.before")   \
  X(kTransferAfter, "transfer.after")     \
  X(kRestoreBefore, "restore.before")     \
  X(kRestoreAfter, "restore.after")       \
  X(kHandoverBefore, "handover.before")   \
  X(kHandoverAfter, "handover.after")     \
  X(kReconnectBefore, "reconnect.before") \
  X(kReconnectAfter, "reconnect.after")

enum class FaultPoint {
#define XMPI_FAULT_ENUM(symbol, name) symbol,
  XMPI_FAULT_POINTS(XMPI_FAULT_ENUM)
#undef XMPI_FAULT_ENUM
};

inline constexpr std::array kFaultPointNames = {
#define XMPI_FAULT_NAME(symbol, name) std::string_view(name),
    XMPI_FAULT_POINTS(XMPI_FAULT_NAME)
#undef XMPI_FAULT_NAME
};

enum class FaultAction { kNone, kError, kCrash, kStall, kCut, kHold, kCorrupt, kFull, kErrorOnce };

consteval FaultPoint FaultPointNamed(std::string_view name) {
  for (std::size_t i = 0; i < kFaultPointNames.size(); ++i) {
    if (kFaultPointNames[i] == name) return static_cast<FaultPoint>(i);
  }
  throw "no fault point of this name";  // In a consteval function this is a compile error.
}

// Arms the points that `specification` names for `actor`, or for nobody in particular, and disarms
// all others; "" disarms all.
Result<> ArmFaults(std::string_view specification, std::string_view actor = "");
// The same from XMPI_FAULT; for main, before anything runs. The launcher is meant only by its name.
Result<> ArmFaultsFromEnvironment(std::string_view actor = "");

// What `cut` does; the program that owns connections sets it.
void SetFaultCut(std::function<void()> cut);

FaultAction ArmedAt(FaultPoint point);
Result<> HitFaultPoint(FaultPoint point);

#define FAULT_POINT(name) ::xmpi::HitFaultPoint(::xmpi::FaultPointNamed(name))

}  // namespace xmpi
