#include "proxy/environment.h"

#include <cstdlib>
#include <format>
#include <map>

#include "proxy/ties.h"

namespace xmpi::proxy {

std::vector<wire::EnvironmentVariable> NodeEnvironment(std::string_view device,
                                                       std::string_view port_range) {
  std::vector<wire::EnvironmentVariable> result;
  const auto add = [&result](std::string name, std::string value) {
    wire::EnvironmentVariable& variable = result.emplace_back();
    variable.set_name(std::move(name));
    variable.set_value(std::move(value));
  };
  if (!device.empty()) add("UCX_NET_DEVICES", std::string(device));
  if (!port_range.empty()) {
    std::string range(port_range);  // LO:HI; UCX writes LO-HI
    if (const std::size_t colon = range.find(':'); colon != range.npos) range[colon] = '-';
    add("UCX_TCP_PORT_RANGE", range);
  }
  return result;
}

std::vector<std::string> EnvironmentOf(const RankEnvironment& what) {
  std::map<std::string, std::string> variables;
  for (const wire::EnvironmentVariable& each : what.rank.environment())
    variables[each.name()] = each.value();
  for (const std::string& name : what.launch.inherit_environment()) {
    if (const char* value = std::getenv(name.c_str())) variables.try_emplace(name, value);
  }
  for (const wire::EnvironmentVariable& each : what.node) variables[each.name()] = each.value();
  variables["PMI_FD"] = std::to_string(kPmiFd);
  variables["PMI_RANK"] = std::to_string(what.rank.rank());
  variables["PMI_SIZE"] = std::to_string(what.launch.size());
  variables["PMI_HOSTNAME"] = what.hostname;
  variables["MPI_LOCALRANKID"] = std::to_string(what.local_rank);
  variables["MPI_LOCALNRANKS"] = std::to_string(what.launch.ranks_size());
  variables["XMPI_FD"] = std::to_string(kControlFd);
  std::vector<std::string> result;
  for (const auto& [name, value] : variables) result.push_back(std::format("{}={}", name, value));
  return result;
}

}  // namespace xmpi::proxy
