#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <optional>

namespace xmpi::log {
namespace {

spdlog::level::level_enum ToSpdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarn:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

std::optional<Level> ParseLevel(std::string_view text) {
  if (text == "debug") return Level::kDebug;
  if (text == "info") return Level::kInfo;
  if (text == "warn") return Level::kWarn;
  if (text == "error") return Level::kError;
  return std::nullopt;
}

std::shared_ptr<spdlog::logger> MakeLogger(std::string program) {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>(std::move(program), std::move(sink));
  logger->set_pattern("%H:%M:%S.%e %n %l %v");
  logger->set_level(spdlog::level::warn);
  logger->flush_on(spdlog::level::debug);
  return logger;
}

std::shared_ptr<spdlog::logger>& Logger() {
  static std::shared_ptr<spdlog::logger> logger = MakeLogger("xmpi");
  return logger;
}

bool NeedsQuotes(std::string_view value) {
  if (value.empty()) return true;
  for (const unsigned char c : value) {
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f) return true;
  }
  return false;
}

void AppendQuoted(std::string* out, std::string_view value) {
  out->push_back('"');
  for (const unsigned char c : value) {
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out->append("\\n");
    } else if (c < ' ' || c == 0x7f) {
      std::format_to(std::back_inserter(*out), "\\x{:02x}", c);
    } else {
      out->push_back(static_cast<char>(c));
    }
  }
  out->push_back('"');
}

}  // namespace

bool Init(std::string_view program) {
  Logger() = MakeLogger(std::string(program));
  const char* wanted = std::getenv("XMPI_LOG");
  if (wanted == nullptr || *wanted == '\0') return true;
  const auto level = ParseLevel(wanted);
  if (level) SetLevel(*level);
  return level.has_value();
}

void SetLevel(Level level) { Logger()->set_level(ToSpdlog(level)); }

bool Enabled(Level level) { return Logger()->should_log(ToSpdlog(level)); }

std::string FormatLine(std::string_view event, std::initializer_list<Field> fields) {
  std::string line(event);
  for (const Field& field : fields) {
    line.push_back(' ');
    line.append(field.key);
    line.push_back('=');
    if (NeedsQuotes(field.value)) {
      AppendQuoted(&line, field.value);
    } else {
      line.append(field.value);
    }
  }
  return line;
}

void Write(Level level, std::string_view event, std::initializer_list<Field> fields) {
  if (!Enabled(level)) return;
  const std::string line = FormatLine(event, fields);
  Logger()->log(ToSpdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace xmpi::log
