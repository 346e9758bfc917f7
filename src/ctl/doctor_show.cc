#include "ctl/doctor_show.h"

#include <format>
#include <nlohmann/json.hpp>

#include "ctl/show.h"
#include "preflight/compare.h"
#include "preflight/cpu.h"

namespace xmpi::ctl {
namespace {

using Json = nlohmann::ordered_json;

// The highest level of x86-64 that the CPU has all of.
std::string LevelOf(const wire::CpuFacts& cpu) {
  wire::CpuFacts ideal;
  for (const std::string& flag : preflight::AllExtensions()) ideal.add_flags(flag);
  for (const char* level : {"x86-64-v4", "x86-64-v3", "x86-64-v2"}) {
    if (preflight::MissingExtensions(ideal, cpu, level).empty()) return level;
  }
  return "x86-64";
}

std::string Gigabytes(std::uint64_t bytes) {
  return std::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
}

}  // namespace

std::string ShowDoctor(const std::vector<Patient>& patients, const wire::Findings& findings) {
  std::vector<std::vector<std::string>> rows{
      {"NODE", "KERNEL", "CRIU", "CPU", "MEMORY ROOM", "NAMESPACES", "IO_URING"}};
  for (const Patient& patient : patients) {
    if (!patient.facts) {
      rows.push_back({patient.node, "-", "-", "-", "-", "-", "-"});
      continue;
    }
    const wire::NodeFacts& facts = *patient.facts;
    rows.push_back({patient.node, facts.kernel(),
                    facts.criu_error().empty() ? facts.criu_version() : "no", LevelOf(facts.cpu()),
                    Gigabytes(facts.memory_room_bytes()), facts.namespaces() ? "yes" : "no",
                    facts.io_uring_disabled() ? "off" : "on"});
  }
  std::string text = Table(rows) + "\n";
  for (const wire::Finding& finding : findings.findings())
    text += std::format("{}: {}\n  why: {}\n  remedy: {}\n",
                        finding.severity() == wire::Finding::REFUSE ? "REFUSED" : "warning",
                        finding.what(), finding.why(), finding.remedy());
  if (findings.findings().empty()) text += "nothing found: ranks can move between these nodes\n";
  return text;
}

Json DoctorJson(const std::vector<Patient>& patients, const wire::Findings& findings) {
  Json nodes = Json::array(), found = Json::array();
  for (const Patient& patient : patients) {
    Json node{{"node", patient.node}};
    if (!patient.facts) {
      node["error"] = patient.facts.error().message;
    } else {
      const wire::NodeFacts& facts = *patient.facts;
      node["hostname"] = facts.hostname();
      node["version"] = facts.version();
      node["kernel"] = facts.kernel();
      node["criu"] = facts.criu_version();
      node["cpu"] = facts.cpu().model();
      node["cpu_level"] = LevelOf(facts.cpu());
      node["cpu_extensions"] = preflight::UsableExtensions(facts.cpu());
      node["xsave_bytes"] = facts.cpu().xsave_bytes();
      node["memory_total_bytes"] = facts.memory_total_bytes();
      node["memory_room_bytes"] = facts.memory_room_bytes();
      node["memory_bound"] = facts.memory_bound();
      node["user"] = facts.user();
      node["namespaces"] = facts.namespaces();
      node["io_uring"] = !facts.io_uring_disabled();
    }
    nodes.push_back(std::move(node));
  }
  for (const wire::Finding& finding : findings.findings())
    found.push_back({{"severity", finding.severity() == wire::Finding::REFUSE ? "refuse" : "warn"},
                     {"node", finding.node()},
                     {"what", finding.what()},
                     {"why", finding.why()},
                     {"remedy", finding.remedy()}});
  return {{"ok", !preflight::Refuses(findings)}, {"nodes", nodes}, {"findings", found}};
}

}  // namespace xmpi::ctl
