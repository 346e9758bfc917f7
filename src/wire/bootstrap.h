// What a proxy must know before it can dial: one line of JSON on its standard input, written by
// the launcher through the remote shell. It carries the job's secret, so it is never logged and
// never passed in argv or the environment; who parses it wipes the text and secret_hex after use.
//
// The command line is `xmpi-proxy JOB SLOT.MIGRATION.ATTEMPT`: for people who read ps, nothing
// else; what counts is the line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "base/limits.h"

namespace xmpi::wire {

struct Bootstrap {
  std::string version{};  // of the launcher; a proxy of another version refuses
  std::string job{};
  ProxyId proxy{};
  std::string node{};                    // the name by which the launcher knows this host
  std::vector<std::string> addresses{};  // the launcher's, numeric, best first
  std::uint16_t port = 0;
  std::string secret_hex{};  // os::Secret::FromHex
  LinkTimeouts timeouts{};
  std::string interface{};   // -iface; empty: any
  std::string port_range{};  // -port-range LO:HI; empty: any
  bool carry_files = true;   // what ranks have open on the node's own disk travels with them
  std::string log_level{};   // as XMPI_LOG; empty: the proxy's own
  std::string fault{};       // as XMPI_FAULT
};

inline constexpr std::size_t kBootstrapBytes = 64u << 10;

// One line, with its newline.
std::string ToLine(const Bootstrap& bootstrap);
// With or without the newline. Errors are kProtocol and name the field, never its value.
Result<Bootstrap> ParseBootstrap(std::string_view line);

}  // namespace xmpi::wire
