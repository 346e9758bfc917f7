// Lists of hosts as users write them: `-hosts h1:2,h2` and the lines of a hostfile. Pure text in,
// values out; nothing is looked up here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace xmpi::launcher {

struct Host {
  std::string name;
  std::uint32_t count = 0;  // ranks it takes in one round; 0: not said
  bool operator==(const Host&) const = default;
};

inline constexpr std::uint32_t kRanksLimit = 4096;  // what the KVS of one job is sized for
inline constexpr std::size_t kHostNameBytes = 255;  // DNS's own limit
inline constexpr std::size_t kHostfileBytes = 4u << 20;

// "h1:2,h2": one Host per occurrence. An IPv6 address with a count is written [fd00::1]:2.
Result<std::vector<Host>> ParseHostList(std::string_view text);
// The same without counts, for -spares.
Result<std::vector<std::string>> ParseNodeList(std::string_view text);

// One `host` or `host:count` a line; '#' begins a comment; CRLF is fine. Lines that repeat a host
// (as batch systems write them, one per core) add up to one Host. Errors name the line.
Result<std::vector<Host>> ParseHostfile(std::string_view text);
Result<std::vector<Host>> ReadHostfile(const std::string& path);

}  // namespace xmpi::launcher
