// Addresses and ports of this host: which addresses others may reach it by, the one that -iface
// means, and listening within -port-range.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace xmpi::os {

struct InterfaceAddress {
  std::string interface;
  std::string address;  // numeric, without scope
  bool ipv6 = false;
  bool loopback = false;
};

// Every usable address of the interfaces that are up; link-local ones are left out.
Result<std::vector<InterfaceAddress>> InterfaceAddresses();

// Where others can reach this host, IPv4 first: all addresses but loopback ones (those only when
// there is nothing else), or with `wanted`, the name of an interface or an address of one, that
// interface's. An unknown `wanted` is an Error that lists what there is.
Result<std::vector<std::string>> ReachableAddresses(std::string_view wanted);

// The interface that `wanted`, its name or an address of it, means on this host: only a name means
// something on other hosts, too. `wanted` itself when there is none.
std::string InterfaceName(std::string_view wanted);

// True for localhost, this host's name and its own addresses: a slot there needs no remote shell.
bool IsThisHost(std::string_view host);

struct PortRange {
  std::uint16_t low = 0;  // 0: any port the system picks
  std::uint16_t high = 0;
};
// From "LO:HI"; "" is any port.
Result<PortRange> ParsePortRange(std::string_view text);

struct Listener {
  Fd socket;  // listening, close-on-exec, non-blocking
  std::uint16_t port = 0;
};
// Listens on the first free port of `range`. `address` "" is every address of the host, IPv6
// included where there is any. The Error of a full range names it.
Result<Listener> Listen(std::string_view address, PortRange range);

}  // namespace xmpi::os
