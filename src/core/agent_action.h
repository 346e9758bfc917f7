// What the proxy's machine asks its shell to do, in order. Work that takes time answers with the
// event of the same name.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
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
// Preflight, then dial the candidate, then the pre-copy if there is to be one -> SourceConnected. A
// newer one or ContinueRanks withdraws it: no SourceConnected comes then. (Attempts are numbered
// anew in each migration, so a late one could be taken for the next's.)
struct ConnectSource {
  std::vector<std::string> addresses{};
  std::uint16_t image_port = 0;
  AttemptId candidate_attempt = 0;
  std::string target{};                      // its node
  std::vector<wire::RankSockets> sockets{};  // that the job's ranks will have closed when parked
  std::optional<std::chrono::milliseconds> precopy{};  // no longer than this
  std::optional<std::chrono::milliseconds> within{};   // until the node is gone
};
// Makes images and sends each as it is made -> RanksDumped; Drained goes by itself. `held`: no
// dump, the images that are held here go to the candidate that ConnectSource reached. ContinueRanks
// and EndRanks withdraw it: no RanksDumped comes then.
struct DumpRanks {
  AttemptId candidate_attempt = 0;
  bool held = false;
  std::chrono::milliseconds timeout{0};  // of each rank
  std::vector<wire::RankImage> facts{};  // what must travel with each image, for ImagesArrived
};
// Nobody will dial again: what has not come over the connection there is will not come
// -> ImagesArrived, if that has not been said.
struct EndTransfer {};
// All or none -> RanksRestored. The images stay until the proxy leaves: a restore may be repeated,
// and then ends what is left of the one before without a word.
struct RestoreRanks {
  std::vector<wire::RankImage> images{};
  std::chrono::milliseconds timeout{0};  // of each rank
};
struct ContinueRanks {
};  // stopped originals go on (still parked); images and connection are dropped
struct EndRanks {  // SIGTERM, then SIGKILL; `at_once`: SIGKILL
  bool at_once = false;
};
struct Leave {  // when all output is delivered: say so, then exit
  std::string reason{};
};
struct AgentLog {
  std::string text{};
};

using AgentAction = std::variant<ToLauncher, ToRank, SignalRank, ToPmi, ClosePmi, StartRanks,
                                 OpenTarget, ConnectSource, DumpRanks, EndTransfer, RestoreRanks,
                                 ContinueRanks, EndRanks, Leave, AgentLog>;
using AgentActions = std::vector<AgentAction>;

}  // namespace xmpi::core
