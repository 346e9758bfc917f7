// xmpictl's end of a job's control socket: one request, any number of events, one last answer.
// Blocking; owns its connection.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "wire/ctl.h"

namespace xmpi::ctl {

using OnEvent = std::function<void(const nlohmann::ordered_json& event)>;

// The `result` of the launcher of `job`. Without `patience` an answer is awaited for as long as the
// launcher lives; the launcher has deadlines of its own.
Result<nlohmann::ordered_json> Ask(const std::string& job, const wire::CtlRequest& request,
                                   const OnEvent& on_event,
                                   std::optional<std::chrono::seconds> patience);

// The job that is meant when none is named: the only one there is.
Result<std::string> TheOnlyJob();

}  // namespace xmpi::ctl
