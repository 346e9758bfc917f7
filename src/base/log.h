// Diagnostics on stderr, one line per event: `phase.event key=value ...`. XMPI_LOG chooses the
// level (debug, info, warn, error; warn when unset). Nothing is logged that a user must read to
// understand a failure: that is an Error's text. Secrets are never fields.
#pragma once

#include <format>
#include <initializer_list>
#include <string>
#include <string_view>

namespace xmpi::log {

enum class Level { kDebug, kInfo, kWarn, kError };

// One `key=value`; a value with spaces, quotes or control characters is quoted and escaped.
struct Field {
  template <class T>
  Field(std::string_view key, const T& value) : key(key), value(std::format("{}", value)) {}
  std::string_view key;
  std::string value;
};

// Names the program in every line and reads XMPI_LOG. Called once by main; without it the name
// is "xmpi". Returns false when XMPI_LOG has a value that is no level (warn is used then).
bool Init(std::string_view program);

void SetLevel(Level level);
bool Enabled(Level level);

void Write(Level level, std::string_view event, std::initializer_list<Field> fields);

// The line without time, program and level, as Write prints it.
std::string FormatLine(std::string_view event, std::initializer_list<Field> fields);

inline void Debug(std::string_view event, std::initializer_list<Field> fields = {}) {
  Write(Level::kDebug, event, fields);
}
inline void Info(std::string_view event, std::initializer_list<Field> fields = {}) {
  Write(Level::kInfo, event, fields);
}
inline void Warn(std::string_view event, std::initializer_list<Field> fields = {}) {
  Write(Level::kWarn, event, fields);
}
inline void Error(std::string_view event, std::initializer_list<Field> fields = {}) {
  Write(Level::kError, event, fields);
}

}  // namespace xmpi::log
