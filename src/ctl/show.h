// What xmpictl shows people: the launcher's answers as lines and tables. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace xmpi::ctl {

// Rows of cells as aligned columns, two blanks apart, without trailing ones.
std::string Table(const std::vector<std::vector<std::string>>& rows);

// One line per job.
std::string ShowList(const std::vector<nlohmann::ordered_json>& statuses);
std::string ShowStatus(const nlohmann::ordered_json& status);
// `dump.begin migration=1`, without newline.
std::string ShowEvent(const nlohmann::ordered_json& event);
// The seven phases, downtime and move time, and where each rank was and is.
std::string ShowResult(const nlohmann::ordered_json& result);

}  // namespace xmpi::ctl
