#include "os/net.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <format>
#include <memory>
#include <optional>

namespace xmpi::os {
namespace {

constexpr int kBacklog = 1024;

std::optional<InterfaceAddress> ToAddress(const ifaddrs& item) {
  if (item.ifa_addr == nullptr || (item.ifa_flags & IFF_UP) == 0) return std::nullopt;
  InterfaceAddress result{item.ifa_name, "", false, (item.ifa_flags & IFF_LOOPBACK) != 0};
  const void* bytes = nullptr;
  if (item.ifa_addr->sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in*>(item.ifa_addr)->sin_addr;
  } else if (item.ifa_addr->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(item.ifa_addr);
    if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) return std::nullopt;
    bytes = &v6->sin6_addr;
    result.ipv6 = true;
  } else {
    return std::nullopt;
  }
  char text[INET6_ADDRSTRLEN];
  inet_ntop(item.ifa_addr->sa_family, bytes, text, sizeof text);
  result.address = text;
  return result;
}

std::string Describe(const std::vector<InterfaceAddress>& all) {
  std::string text;
  for (const auto& item : all) {
    text += std::format("{}{} ({})", text.empty() ? "" : ", ", item.interface, item.address);
  }
  return text;
}

// 0 when `text` is no port.
std::uint16_t ParsePort(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() ? port : 0;
}

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  static std::optional<SocketAddress> From(const std::string& address, std::uint16_t port) {
    SocketAddress result;
    auto* v4 = reinterpret_cast<sockaddr_in*>(&result.storage);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&result.storage);
    if (inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
      v4->sin_family = AF_INET;
      v4->sin_port = htons(port);
      result.size = sizeof *v4;
      return result;
    }
    if (inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr) == 1) {
      v6->sin6_family = AF_INET6;
      v6->sin6_port = htons(port);
      result.size = sizeof *v6;
      return result;
    }
    return std::nullopt;
  }
};

Result<Listener> ListenOn(const std::string& address, std::uint16_t port) {
  auto name = SocketAddress::From(address, port);
  if (!name) return Fail(ErrorCode::kUsage, std::format("'{}' is no IP address", address));
  const int family = name->storage.ss_family;
  Fd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return std::unexpected(ErrnoError("listen"));
  const int on = 1;
  const int off = 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  auto* raw = reinterpret_cast<sockaddr*>(&name->storage);
  if (::bind(socket.get(), raw, name->size) != 0 || ::listen(socket.get(), kBacklog) != 0 ||
      ::getsockname(socket.get(), raw, &name->size) != 0) {
    return std::unexpected(ErrnoError(std::format("listen on {} port {}", address, port)));
  }
  const std::uint16_t bound = family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(raw)->sin6_port
                                                 : reinterpret_cast<sockaddr_in*>(raw)->sin_port;
  return Listener{std::move(socket), ntohs(bound)};
}

// Hosts without IPv6 refuse "::" in several ways; IPv4 is then all there is.
Result<Listener> ListenAnywhere(std::uint16_t port) {
  auto both = ListenOn("::", port);
  if (both || errno == EADDRINUSE) return both;
  return ListenOn("0.0.0.0", port);
}

}  // namespace

Result<std::vector<InterfaceAddress>> InterfaceAddresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return std::unexpected(ErrnoError("network interfaces"));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::vector<InterfaceAddress> result;
  for (const ifaddrs* item = list; item != nullptr; item = item->ifa_next) {
    if (auto address = ToAddress(*item)) result.push_back(std::move(*address));
  }
  return result;
}

Result<std::vector<std::string>> ReachableAddresses(std::string_view wanted) {
  XMPI_ASSIGN_OR_RETURN(std::vector<InterfaceAddress> all, InterfaceAddresses());
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.ipv6 < b.ipv6; });
  std::vector<std::string> result;
  std::vector<std::string> loopback;
  for (const auto& item : all) {
    if (!wanted.empty()) {
      if (item.interface == wanted || item.address == wanted) result.push_back(item.address);
    } else {
      (item.loopback ? loopback : result).push_back(item.address);
    }
  }
  if (result.empty() && !wanted.empty()) {
    return Fail(ErrorCode::kUsage, std::format("no interface '{}' that is up with an address; "
                                               "there are {}",
                                               wanted, Describe(all)));
  }
  if (result.empty()) result = std::move(loopback);
  if (result.empty()) return Fail("this host has no network address at all");
  return result;
}

std::string InterfaceName(std::string_view wanted) {
  const auto all = InterfaceAddresses();
  if (!all) return std::string(wanted);
  const auto found =
      std::ranges::find(*all, wanted, [](const InterfaceAddress& each) { return each.address; });
  return found == all->end() ? std::string(wanted) : found->interface;
}

bool IsThisHost(std::string_view host) {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  if (host == "localhost" || host == name) return true;
  const auto all = InterfaceAddresses();
  return all && std::any_of(all->begin(), all->end(),
                            [&](const auto& item) { return item.address == host; });
}

Result<PortRange> ParsePortRange(std::string_view text) {
  if (text.empty()) return PortRange{};
  const auto colon = text.find(':');
  const std::uint16_t low = ParsePort(text.substr(0, colon));
  const std::uint16_t high =
      colon == std::string_view::npos ? 0 : ParsePort(text.substr(colon + 1));
  if (low == 0 || high == 0 || low > high) {
    return Fail(ErrorCode::kUsage,
                std::format("port range '{}': give LO:HI with 1 <= LO <= HI <= 65535", text));
  }
  return PortRange{low, high};
}

Result<Listener> Listen(std::string_view address, PortRange range) {
  for (unsigned port = range.low; port <= range.high; ++port) {
    errno = 0;
    auto listener = address.empty()
                        ? ListenAnywhere(static_cast<std::uint16_t>(port))
                        : ListenOn(std::string(address), static_cast<std::uint16_t>(port));
    if (listener || errno != EADDRINUSE) return listener;
  }
  return Fail(
      std::format("no free port in {}:{}; give a wider -port-range", range.low, range.high));
}

}  // namespace xmpi::os
