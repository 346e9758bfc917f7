// What the launcher's machine is told. Each event carries all it needs; time comes as the second
// argument of Coordinator::On.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "base/ids.h"
#include "core/phase.h"
#include "wire/control.pb.h"

namespace xmpi::core {

using RequestId = std::uint64_t;  // one order of an operator; 0 = none

struct TimerId {
  enum class Kind { kStart, kStep, kEnd };
  Kind kind = Kind::kStart;
  MigrationId migration = 0;
  AttemptId attempt = 0;
  Step step = Step::kTarget;
  std::uint32_t entry = 0;  // the n-th step of its migration
  auto operator<=>(const TimerId&) const = default;
};

struct StartJob {};
struct ProxyMessage {
  ProxyId from{};
  wire::Envelope envelope{};
};
struct ProxyLost {  // could not be started, died, or was silent for too long
  ProxyId proxy{};
  std::string reason{};
};
struct OutputDrained {  // all that the slot's ranks wrote before the dump is in our hands
  ProxyId proxy{};
};
struct TimerExpired {
  TimerId timer{};
};
struct EvacuateOrder {
  RequestId request = 0;
  std::string node{};
  std::optional<std::string> to{};
  // How long the node will still be there, if that is known.
  std::optional<std::chrono::milliseconds> within{};
  bool precopy = true;  // the ranks' memory goes ahead while they run
};
struct CancelOrder {
  RequestId request = 0;
};
struct EndOrder {  // a signal to the launcher, -timeout, a broken stdout
  int exit_code = 0;
  std::string reason{};
};

using Event = std::variant<StartJob, ProxyMessage, ProxyLost, OutputDrained, TimerExpired,
                           EvacuateOrder, CancelOrder, EndOrder>;

}  // namespace xmpi::core
