// The job's events as JSON lines, one core::Record each with its time: what happened, in order, to
// read or to replay after the job. Old logs of the same folder are pruned. A log that cannot be
// written is told once and then left: it never stops a job.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "core/action.h"

namespace xmpi::launcher {

// `phase.event key=value ...`, as -v shows it.
std::string RecordText(const core::Record& record);
// One JSON object: "event", then the fields in order.
std::string RecordJson(const core::Record& record);

class EventLog {
 public:
  static constexpr std::size_t kLogsKept = 100;

  // ${XMPI_LOG_DIR}, else ${XDG_STATE_HOME}/xmpi, else ~/.local/state/xmpi; empty without HOME.
  static std::string DefaultFolder();
  // FOLDER/JOB-DATE.jsonl, after pruning FOLDER to kLogsKept - 1 logs; made if need be.
  static Result<EventLog> OpenIn(const std::string& folder, std::string_view job,
                                 std::chrono::system_clock::time_point now);
  static Result<EventLog> OpenFile(const std::string& path);

  // `since_start_us` is the launcher's monotonic clock.
  Result<> Write(const core::Record& record, std::chrono::system_clock::time_point now,
                 std::int64_t since_start_us);
  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  EventLog(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace xmpi::launcher
