#include "criu/criu_log.h"

namespace xmpi::criu {
namespace {

// "(00.012345) 17: Error (criu/sk-inet.c:191): inet: Connected TCP socket" -> "inet: Connected ..."
std::string_view ErrorOf(std::string_view line) {
  const std::size_t at = line.find("Error (");
  if (at == std::string_view::npos) return {};
  const std::size_t end = line.find("): ", at);
  std::string_view text = end == std::string_view::npos ? line.substr(at) : line.substr(end + 3);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && (text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::string ErrorLines(std::string_view log, std::size_t limit) {
  std::string out;
  for (std::size_t found = 0; found < limit && !log.empty();) {
    const std::size_t end = log.find('\n');
    const std::string_view text = ErrorOf(log.substr(0, end));
    log.remove_prefix(end == std::string_view::npos ? log.size() : end + 1);
    if (text.empty()) continue;
    if (!out.empty()) out += "; ";
    out += text;
    ++found;
  }
  return out;
}

std::string LogTail(std::string_view log, std::size_t limit_bytes) {
  if (log.size() <= limit_bytes) return std::string(log);
  log.remove_prefix(log.size() - limit_bytes);
  const std::size_t line = log.find('\n');
  return std::string(line == std::string_view::npos ? log : log.substr(line + 1));
}

}  // namespace xmpi::criu
