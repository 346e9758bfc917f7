// What the proxy's machine asks its shell to do, in order. Work that takes time answers with the
// event of the same name.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "core/agent_event.h"
#include "wire/control.pb.h"

namespace xmpi::core {

struct ToLauncher {
  wire::Envelope envelope{};
};
struct ToRank {
  RankId rank = 0;
  RankMessage message{};
};
struct SignalRank {  // exactly this thread (in the rank's PID namespace)
  RankId rank = 0;
  std::uint32_t thread = 0;
  std::uint32_t signal = 0;
};
struct ToPmi {
  RankId rank = 0;
  std::string bytes{};
};
struct ClosePmi {  // it does not speak PMI
  RankId rank = 0;
};
struct StartRanks {  // -> RanksStarted
  wire::Launch launch{};
};
struct OpenTarget {  // preflight, then listen for images -> TargetPrepared
  wire::Launch launch{};
};
struct ConnectSource {  // preflight, then dial the candidate -> SourceConnected
  std::vector<std::string> addresses{};
  std::uint16_t image_port = 0;
  AttemptId candidate_attempt = 0;
};
struct DumpRanks {};  // and send each image as it is made -> RanksDumped; Drained goes by itself
struct RestoreRanks {  // -> RanksRestored
  std::vector<wire::RankImage> images{};
};
struct ContinueRanks {};  // stopped originals go on (still parked); images and connection are dropped
struct EndRanks {         // SIGTERM, then SIGKILL; `at_once`: SIGKILL
  bool at_once = false;
};
struct Leave {  // when all output is delivered: say so, then exit
  std::string reason{};
};
struct AgentLog {
  std::string text{};
};

using AgentAction = std::variant<ToLauncher, ToRank, SignalRank, ToPmi, ClosePmi, StartRanks,
                                 OpenTarget, ConnectSource, DumpRanks, RestoreRanks, ContinueRanks,
                                 EndRanks, Leave, AgentLog>;
using AgentActions = std::vector<AgentAction>;

}  // namespace xmpi::core
