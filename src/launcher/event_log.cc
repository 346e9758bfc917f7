#include "launcher/event_log.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <format>
#include <nlohmann/json.hpp>
#include <vector>

namespace xmpi::launcher {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json ToJson(const core::Record& record) {
  Json object;
  object["event"] = record.name;
  for (const auto& [name, value] : record.fields)
    std::visit([&](const auto& plain) { object[name] = plain; }, value);
  return object;
}

std::string Dump(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The name that OpenIn gives, JOB-20261130T131300Z.jsonl: nothing else in the folder is ours to
// delete.
bool IsLog(const std::string& name) {
  constexpr std::string_view kEnd = "-DDDDDDDDTDDDDDDZ.jsonl";
  if (name.size() <= kEnd.size()) return false;
  return std::ranges::equal(name.substr(name.size() - kEnd.size()), kEnd, [](char c, char form) {
    return form == 'D' ? c >= '0' && c <= '9' : c == form;
  });
}

// Leaves the newest `keep` logs of the folder.
void Prune(const fs::path& folder, std::size_t keep) {
  std::vector<std::pair<fs::file_time_type, fs::path>> logs;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (IsLog(entry.path().filename()) && entry.is_regular_file(ignored))
      logs.emplace_back(entry.last_write_time(ignored), entry.path());
  }
  if (logs.size() <= keep) return;
  std::ranges::sort(logs);
  for (std::size_t i = 0; i < logs.size() - keep; ++i) fs::remove(logs[i].second, ignored);
}

const char* Environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

}  // namespace

std::string RecordText(const core::Record& record) {
  std::string text = record.name;
  for (const auto& [name, value] : record.fields) {
    const auto* plain = std::get_if<std::string>(&value);
    const bool bare = plain == nullptr ||
                      (!plain->empty() && plain->find_first_of(" \t\n\r\"=") == std::string::npos);
    text += std::format(" {}=", name);
    text += plain == nullptr ? std::to_string(std::get<std::int64_t>(value))
            : bare           ? *plain
                             : Dump(*plain);
  }
  return text;
}

std::string RecordJson(const core::Record& record) { return Dump(ToJson(record)); }

std::string EventLog::DefaultFolder() {
  if (const char* folder = Environment("XMPI_LOG_DIR")) return folder;
  if (const char* state = Environment("XDG_STATE_HOME")) return fs::path(state) / "xmpi";
  if (const char* home = Environment("HOME")) return fs::path(home) / ".local/state/xmpi";
  return "";
}

Result<EventLog> EventLog::OpenIn(const std::string& folder, std::string_view job,
                                  std::chrono::system_clock::time_point now) {
  if (folder.empty())
    return Fail("there is no HOME for an event log; XMPI_LOG_DIR names a folder for it");
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return Fail(std::format("event log folder {}: {}", folder, error.message()));
  Prune(folder, kLogsKept - 1);
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  return OpenFile(fs::path(folder) / std::format("{}-{:%Y%m%dT%H%M%SZ}.jsonl", job, seconds));
}

Result<EventLog> EventLog::OpenFile(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return std::unexpected(ErrnoError(std::format("event log {}", path)));
  return EventLog(path, file);
}

Result<> EventLog::Write(const core::Record& record, std::chrono::system_clock::time_point now,
                         std::int64_t since_start_us) {
  if (!file_) return {};
  Json line;
  const auto time = std::chrono::floor<std::chrono::microseconds>(now);
  line["time"] = std::format("{:%FT%TZ}", time);
  line["us"] = since_start_us;
  line.update(ToJson(record));
  const std::string text = Dump(line) + "\n";
  // Each line goes out at once: the log must tell of a launcher that was killed, too.
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() &&
      std::fflush(file_.get()) == 0)
    return {};
  Error error = ErrnoError(std::format("event log {}", path_));
  error.message += "; it ends here";
  file_.reset();
  return std::unexpected(std::move(error));
}

}  // namespace xmpi::launcher
