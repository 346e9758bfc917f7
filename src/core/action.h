// What the launcher's machine asks its shell to do, in order. Values only; performing one never
// calls back into the machine before the next.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "core/event.h"
#include "core/phase.h"
#include "wire/control.pb.h"

namespace xmpi::core {

struct StartProxy {
  ProxyId proxy{};
  std::string node{};
};
struct SendMessage {
  ProxyId to{};
  wire::Envelope envelope{};
};
struct StopProxy {  // close its link, end its remote shell
  ProxyId proxy{};
};
struct StartTimer {
  TimerId timer{};
  std::chrono::milliseconds after{0};
};
struct DrainOutput {  // take this slot's output without regard to who reads ours
  ProxyId proxy{};
};
struct FeedInput {  // standard input goes to this proxy now; nullopt ranks: hold it
  SlotId slot = 0;
  bool hold = false;
};

// One line of the event log: `name key=value ...`; replaying the lines gives the same view.
struct Record {
  using Value = std::variant<std::string, std::int64_t>;
  std::string name{};
  std::vector<std::pair<std::string, Value>> fields{};
};

struct MovedRank {
  RankId rank = 0;
  std::uint32_t pid_before = 0;
  std::uint32_t pid_after = 0;
};

struct MovedSlot {
  SlotId slot = 0;
  std::string from{};
  std::string to{};
  bool moved = false;
  std::string reason{};  // why it stays where it is
};

struct MigrationResult {
  MigrationId migration = 0;
  bool ok = false;       // nothing of the job is on the node any more
  std::string reason{};  // why not, and what state the job is in
  SlotId slot = 0;       // the first that left the node; all: `slots`
  std::string from{};
  std::string to{};
  std::vector<MovedSlot> slots{};  // of the whole migration
  std::vector<MovedRank> ranks{};
  std::uint64_t stop_call = 0;
  std::uint64_t image_bytes = 0;    // memory and all else of the ranks
  std::uint64_t precopy_bytes = 0;  // on the wire while they ran
  std::uint64_t wire_bytes = 0;     // on the wire after the dump began
  std::array<std::int64_t, kPhases> phases_us{};
  std::int64_t downtime_us = 0;
  std::int64_t move_us = 0;
};

struct Accepted {  // the order became this migration
  RequestId request = 0;
  MigrationId migration = 0;
};
struct Answer {  // the order's end
  RequestId request = 0;
  MigrationResult result;
};
struct Tell {  // a line for the user, on stderr
  std::string text{};
};
struct EndJob {  // everything is over
  int exit_code = 0;
};

using Action = std::variant<StartProxy, SendMessage, StopProxy, StartTimer, DrainOutput, FeedInput,
                            Record, Accepted, Answer, Tell, EndJob>;
using Actions = std::vector<Action>;

}  // namespace xmpi::core
