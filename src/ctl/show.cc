#include "ctl/show.h"

#include <algorithm>
#include <format>
#include <nlohmann/json.hpp>
#include <set>

namespace xmpi::ctl {
namespace {

using Json = nlohmann::ordered_json;

// Without JSON's quotes where it is plain text.
std::string Plain(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string Field(const Json& object, const char* name) {
  return object.contains(name) ? Plain(object[name]) : "?";
}

std::string Milliseconds(const Json& object, const char* name) {
  return std::format("{:.1f}", object.value(name, 0.0));
}

std::string Bytes(double bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  for (; bytes >= 1000 && unit < 4; ++unit) bytes /= 1000;
  return unit == 0 ? std::format("{:.0f} B", bytes) : std::format("{:.1f} {}", bytes, units[unit]);
}

std::string NodesOf(const Json& status) {
  std::string nodes;
  std::set<std::string> seen;
  for (const Json& slot : status["slots"]) {
    if (const std::string node = Field(slot, "node"); seen.insert(node).second)
      nodes += (nodes.empty() ? "" : ",") + node;
  }
  return nodes;
}

std::string RanksOf(const Json& slot) {
  std::string ranks;
  for (const Json& rank : slot["ranks"]) {
    const bool exited = rank.value("exited", false);
    ranks += std::format("{}{} ({})", ranks.empty() ? "" : ", ", Field(rank, "rank"),
                         exited ? "ended" : Field(rank, "pid"));
  }
  return ranks;
}

// A line for each rank: the end of the whole is that of the last.
std::string ShowProgress(const Json& progress) {
  std::string text;
  double left = 0;
  for (const Json& rank : progress["ranks"]) {
    const double done = rank.value("done_bytes", 0.0);
    const double total = rank.value("total_bytes", 0.0);
    left += total - done;
    text += std::format("  rank {}: {} {} of {} ({:.0f} %)\n", Field(rank, "rank"),
                        Field(progress, "stage"), Bytes(done), Bytes(total),
                        total > 0 ? 100 * done / total : 100.0);
  }
  const double rate = progress.value("bytes_per_s", 0.0);
  if (rate > 0) text += std::format("  {}/s, {:.1f} s to go\n", Bytes(rate), left / rate);
  return text;
}

}  // namespace

std::string Table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += std::format("{:<{}}  ", row[i], widths[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string ShowList(const std::vector<Json>& statuses) {
  if (statuses.empty()) return "no job of yours runs on this host\n";
  std::vector<std::vector<std::string>> rows{{"JOB", "STAGE", "RANKS", "MIGRATIONS", "NODES"}};
  for (const Json& status : statuses)
    rows.push_back({Field(status, "job"), Field(status, "stage"), Field(status, "ranks"),
                    Field(status, "migrations"), NodesOf(status)});
  return Table(rows);
}

std::string ShowStatus(const Json& status) {
  std::string text =
      std::format("job {}: {}, {} ranks, {} migrations so far\n\n", Field(status, "job"),
                  Field(status, "stage"), Field(status, "ranks"), Field(status, "migrations"));
  std::vector<std::vector<std::string>> rows{{"SLOT", "NODE", "EPOCH", "RANKS (PID)"}};
  for (const Json& slot : status["slots"])
    rows.push_back({Field(slot, "slot"), Field(slot, "node"), Field(slot, "epoch"), RanksOf(slot)});
  text += Table(rows);
  std::string spares;
  for (const Json& spare : status["spares"]) spares += (spares.empty() ? "" : ", ") + Plain(spare);
  text += std::format("\nspares: {}\n", spares.empty() ? "none" : spares);
  const Json& migration = status["migration"];
  if (!migration.is_object()) return text;
  for (const Json& move : migration["moves"]) {
    text += std::format("migration {}: slot {} from {} to {}, in {} ({})\n",
                        Field(migration, "migration"), Field(move, "slot"), Field(move, "from"),
                        Field(move, "to"), Field(migration, "phase"), Field(migration, "step"));
    if (move.contains("progress") && move["progress"].is_object())
      text += ShowProgress(move["progress"]);
  }
  return text;
}

std::string ShowEvent(const Json& event) {
  std::string text = Field(event, "event");
  for (const auto& [name, value] : event.items()) {
    if (name == "event") continue;
    const std::string plain = Plain(value);
    const bool bare = !plain.empty() && plain.find_first_of(" \t\n\"=") == std::string::npos;
    text += std::format(" {}={}", name, bare ? plain : value.dump());
  }
  return text;
}

std::string ShowResult(const Json& result) {
  std::vector<std::vector<std::string>> rows{{"PHASE", "MS"}};
  for (const auto& [phase, unused] : result["phases_ms"].items())
    rows.push_back({phase, Milliseconds(result["phases_ms"], phase.c_str())});
  rows.push_back({"downtime", Milliseconds(result, "downtime_ms")});
  rows.push_back({"move time", Milliseconds(result, "move_ms")});
  std::string text = Table(rows);
  text += std::format("images: {}; sent {} while the ranks ran, {} after\n",
                      Bytes(result.value("image_bytes", 0.0)),
                      Bytes(result.value("precopy_bytes", 0.0)),
                      Bytes(result.value("wire_bytes", 0.0)));
  if (result["ranks"].empty()) return text;
  std::vector<std::vector<std::string>> moved{
      {"RANK", "PID ON " + Field(result, "from"), "PID ON " + Field(result, "to")}};
  for (const Json& rank : result["ranks"])
    moved.push_back({Field(rank, "rank"), Field(rank, "pid_before"), Field(rank, "pid_after")});
  return text + "\n" + Table(moved);
}

}  // namespace xmpi::ctl
