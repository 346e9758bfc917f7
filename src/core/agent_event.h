// What the proxy's machine is told by its shell: messages, what the ranks say and how they end, and
// the results of the work it ordered. Values only.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "wire/control.pb.h"
#include "wire/rank_link.h"

namespace xmpi::core {

// A rank_link::Message that owns its texts.
struct RankMessage {
  rank_link::Message fields{};  // its views are empty
  std::string name{};
  std::string text{};
};

struct LauncherSaid {
  wire::Envelope envelope{};
};
struct RankSaid {
  RankId rank = 0;
  RankMessage message{};
};
struct RankPmi {  // bytes from its PMI socket
  RankId rank = 0;
  std::string bytes{};
};
struct RankEnded {  // after all it wrote to its PMI socket was delivered
  RankId rank = 0;
  std::uint32_t wait_status = 0;
};
struct RanksStarted {
  std::string error{};
  std::vector<wire::RankPlace> places{};
};
struct TargetPrepared {
  std::string error{};
  std::vector<std::string> addresses{};
  std::uint16_t image_port = 0;
};
struct SourceConnected {
  AttemptId candidate_attempt = 0;
  std::string error{};
  wire::Plan plan{};  // what the pre-copy has learned
};
struct RanksDumped {  // every rank of the slot, or the first failure
  std::string error{};
  std::vector<wire::RankImage> images{};  // rank and bytes are set
};
struct ImagesArrived {
  std::string error{};
  std::uint64_t wire_bytes = 0;           // that came since the dump began
  std::vector<wire::RankImage> images{};  // the facts that came with them
};
struct RanksRestored {
  std::string error{};
  std::vector<wire::RankPlace> places{};
};

using AgentEvent =
    std::variant<LauncherSaid, RankSaid, RankPmi, RankEnded, RanksStarted, TargetPrepared,
                 SourceConnected, RanksDumped, ImagesArrived, RanksRestored>;

}  // namespace xmpi::core
