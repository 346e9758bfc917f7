#include "launcher/hosts.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <format>
#include <fstream>
#include <iterator>

namespace xmpi::launcher {
namespace {

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\v\f";
  const auto first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// With a colon it can only be an IPv6 address.
bool MayHaveColon(std::string_view name) {
  return std::ranges::all_of(name.substr(0, name.find('%')), [](unsigned char c) {
    return std::isxdigit(c) || c == ':' || c == '.';
  });
}

// A name goes to ssh as an argument: it must not look like an option or hold anything odd.
bool IsHostName(std::string_view name) {
  if (name.contains(':') && !MayHaveColon(name)) return false;
  if (name.empty() || name.size() > kHostNameBytes || name.front() == '-') return false;
  return std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '-' || c == '_' || c == ':' || c == '@' ||
           c == '%' || c >= 0x80;
  });
}

Result<Host> ParseHost(std::string_view text) {
  Host host;
  std::string_view count;
  const auto bracket = text.find(']');
  if (text.starts_with('[') && bracket != std::string_view::npos) {
    host.name = text.substr(1, bracket - 1);
    const std::string_view rest = text.substr(bracket + 1);
    if (!rest.empty() && rest.front() != ':')
      return Fail(ErrorCode::kUsage,
                  std::format("'{}' is not of the form HOST or HOST:COUNT", text));
    count = rest.empty() ? rest : rest.substr(1);
    if (!rest.empty() && count.empty()) count = "?";
  } else if (std::ranges::count(text, ':') == 1) {
    host.name = text.substr(0, text.find(':'));
    count = text.substr(text.find(':') + 1);
    if (count.empty()) count = "?";
  } else {
    host.name = text;
  }
  if (text.find_first_of(" \t") != std::string_view::npos)
    return Fail(ErrorCode::kUsage, std::format("'{}' is not of the form HOST or HOST:COUNT", text));
  if (!IsHostName(host.name))
    return Fail(ErrorCode::kUsage, std::format("'{}' is not a host name", host.name));
  if (count.empty()) return host;
  const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), host.count);
  if (error != std::errc() || end != count.data() + count.size() || host.count == 0 ||
      host.count > kRanksLimit)
    return Fail(ErrorCode::kUsage,
                std::format("'{}': the count must be a number from 1 to {}", text, kRanksLimit));
  return host;
}

}  // namespace

Result<std::vector<Host>> ParseHostList(std::string_view text) {
  std::vector<Host> hosts;
  while (true) {
    const auto comma = text.find(',');
    XMPI_ASSIGN_OR_RETURN(Host host, ParseHost(Trim(text.substr(0, comma))));
    if (hosts.size() >= kRanksLimit)
      return Fail(ErrorCode::kUsage, std::format("more than {} hosts", kRanksLimit));
    hosts.push_back(std::move(host));
    if (comma == std::string_view::npos) return hosts;
    text.remove_prefix(comma + 1);
  }
}

Result<std::vector<std::string>> ParseNodeList(std::string_view text) {
  XMPI_ASSIGN_OR_RETURN(const std::vector<Host> hosts, ParseHostList(text));
  std::vector<std::string> names;
  for (const Host& host : hosts) {
    if (host.count != 0)
      return Fail(ErrorCode::kUsage, std::format("'{}' must have no count here", host.name));
    names.push_back(host.name);
  }
  return names;
}

Result<std::vector<Host>> ParseHostfile(std::string_view text) {
  std::vector<Host> hosts;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const auto newline = text.find('\n');
    std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    line = Trim(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    auto host = ParseHost(line);
    if (!host) return std::unexpected(WithContext(std::format("line {}", number), host.error()));
    const auto known =
        std::ranges::find_if(hosts, [&](const Host& each) { return each.name == host->name; });
    if (known == hosts.end()) {
      if (hosts.size() >= kRanksLimit)
        return Fail(ErrorCode::kUsage, std::format("more than {} hosts", kRanksLimit));
      hosts.push_back(std::move(*host));
      continue;
    }
    known->count = std::max(known->count, 1u) + std::max(host->count, 1u);
    if (known->count > kRanksLimit)
      return Fail(ErrorCode::kUsage, std::format("line {}: more than {} ranks for host {}", number,
                                                 kRanksLimit, known->name));
  }
  if (hosts.empty()) return Fail(ErrorCode::kUsage, "it names no host");
  return hosts;
}

Result<std::vector<Host>> ReadHostfile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return Fail(ErrorCode::kUsage, ErrnoError(std::format("hostfile {}", path)).message);
  std::string text(kHostfileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad())
    return Fail(ErrorCode::kUsage, ErrnoError(std::format("hostfile {}", path)).message);
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kHostfileBytes)
    return Fail(ErrorCode::kUsage,
                std::format("hostfile {} is larger than {} bytes", path, kHostfileBytes));
  auto hosts = ParseHostfile(text);
  if (!hosts) return std::unexpected(WithContext(std::format("hostfile {}", path), hosts.error()));
  return hosts;
}

}  // namespace xmpi::launcher
