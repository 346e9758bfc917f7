// What xmpictl and a launcher say to each other over the job's control socket: one JSON object a
// line. xmpictl sends one request; the launcher answers with any number of `event` lines (evacuate:
// the records of its migration as they happen) and exactly one last line, `result` or `error`.
//
//   {"command": "status"}                                -> {"result": {...}}
//   {"command": "evacuate", "node": "n2", "to": "n3"}    -> {"event": {...}} ... {"result": {...}}
//     and, if wanted: "within_ms": 30000, "precopy": false
//   {"command": "cancel"}                                -> {"result": {...}}
//   anything else                                        -> {"error": "..."}
//
// Pure text; whoever is at the socket has proved his uid, yet every line is bounded and checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace xmpi::wire {

inline constexpr std::size_t kCtlRequestBytes = 4u << 10;
inline constexpr std::size_t kCtlReplyBytes = 16u << 20;  // the status of 4096 ranks is 1 MiB

struct CtlRequest {
  enum class Command { kStatus, kEvacuate, kCancel };
  Command command = Command::kStatus;
  std::string node{};               // evacuate
  std::optional<std::string> to{};  // evacuate
  std::optional<std::int64_t> within_ms{};
  bool precopy = true;
};

std::string ToLine(const CtlRequest& request);
Result<CtlRequest> ParseCtlRequest(std::string_view line);

// The three kinds of answer, as lines.
std::string CtlEvent(const nlohmann::ordered_json& event);
std::string CtlResult(const nlohmann::ordered_json& result);
std::string CtlError(std::string_view message);

}  // namespace xmpi::wire
