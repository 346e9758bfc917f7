#include "preflight/sockets.h"

#include <arpa/inet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <sys/socket.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <format>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/fd.h"

namespace xmpi::preflight {
namespace {

constexpr unsigned kTcpListen = 10;
constexpr std::size_t kAddressDigits = 8;  // of each word of an address in /proc/net/tcp

// "0100007F:1F90" of /proc/net/tcp, or the longer form of tcp6.
std::string AddressOf(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return text;
  std::array<std::uint32_t, 4> words{};
  for (std::size_t i = 0; i * kAddressDigits < colon && i < words.size(); ++i)
    words[i] = static_cast<std::uint32_t>(
        std::strtoul(text.substr(i * kAddressDigits, kAddressDigits).c_str(), nullptr, 16));
  const std::string port = std::format(":{}", std::strtoul(text.c_str() + colon + 1, nullptr, 16));
  bool six = colon > kAddressDigits;
  // An IPv4 address by way of an IPv6 socket.
  if (six && words[0] == 0 && words[1] == 0 && words[2] == htonl(0xffff)) {
    six = false;
    words[0] = words[3];
  }
  std::array<char, INET6_ADDRSTRLEN> name{};
  inet_ntop(six ? AF_INET6 : AF_INET, words.data(), name.data(), name.size());
  return six ? std::format("[{}]{}", name.data(), port) : name.data() + port;
}

bool IsNowhere(const std::string& address) { return address.ends_with(":0"); }

}  // namespace

Sockets::Sockets(const std::string& process) {
  const std::string net = process + "/net/";
  ReadInternet(net + "tcp", "TCP", wire::Held::TCP);
  ReadInternet(net + "tcp6", "TCP", wire::Held::TCP);
  ReadInternet(net + "udp", "UDP", wire::Held::UDP);
  ReadInternet(net + "udp6", "UDP", wire::Held::UDP);
  ReadInternet(net + "raw", "raw IP", wire::Held::OTHER_SOCKET);
  ReadInternet(net + "raw6", "raw IP", wire::Held::OTHER_SOCKET);
  ReadOther(net + "packet", "packet socket", "Inode");
  ReadOther(net + "netlink", "netlink socket", "Inode");
  ReadUnix(net + "unix");
  AskForPeers();
}

SocketFacts Sockets::Find(std::uint64_t inode, const std::string& link) const {
  const auto found = sockets_.find(inode);
  if (found != sockets_.end()) return found->second;
  std::array<char, 64> name{};
  const ssize_t size = getxattr(link.c_str(), "system.sockprotoname", name.data(), name.size() - 1);
  const std::string protocol = size > 0 ? name.data() : "";
  const wire::Held::Kind kind = protocol.starts_with("TCP")   ? wire::Held::TCP
                                : protocol.starts_with("UDP") ? wire::Held::UDP
                                                              : wire::Held::OTHER_SOCKET;
  return {
      .kind = kind,
      .text = protocol.empty() ? "socket of unknown kind" : protocol + " socket, not connected"};
}

void Sockets::ReadInternet(const std::string& file, const char* protocol, wire::Held::Kind kind) {
  std::ifstream lines(file);
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string number, local, remote, state, skipped;
    std::uint64_t inode = 0;
    words >> number >> local >> remote >> state;
    for (int i = 0; i < 5; ++i) words >> skipped;
    if (!(words >> inode) || inode == 0) continue;
    local = AddressOf(local);
    remote = AddressOf(remote);
    const bool listening =
        kind == wire::Held::TCP && std::strtoul(state.c_str(), nullptr, 16) == kTcpListen;
    sockets_[inode] = {kind,
                       listening ? std::format("{} socket listening on {}", protocol, local)
                       : IsNowhere(remote)
                           ? std::format("{} socket {}", protocol, local)
                           : std::format("{} connection {} -> {}", protocol, local, remote),
                       0, local, IsNowhere(remote) ? "" : remote};
  }
}

void Sockets::ReadUnix(const std::string& file) {
  std::ifstream lines(file);
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string skipped, path;
    std::uint64_t inode = 0;
    for (int i = 0; i < 6; ++i) words >> skipped;
    if (!(words >> inode)) continue;
    words >> path;
    sockets_[inode] = {.kind = wire::Held::UNIX_SOCKET,
                       .text = "Unix socket" + (path.empty() ? "" : " " + path)};
  }
}

void Sockets::ReadOther(const std::string& file, const char* kind, const char* inode_column) {
  std::ifstream lines(file);
  std::string line;
  std::getline(lines, line);
  std::istringstream names(line);
  std::size_t column = 0, at = 0;
  for (std::string name; names >> name; ++at) {
    if (name == inode_column) column = at;
  }
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string word;
    for (std::size_t i = 0; i <= column; ++i) words >> word;
    const std::uint64_t inode = std::strtoull(word.c_str(), nullptr, 10);
    if (words && inode != 0) sockets_[inode] = {.text = kind};
  }
}

// /proc/net/unix does not tell who is connected to whom.
void Sockets::AskForPeers() {
  const Fd netlink(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  struct {
    nlmsghdr header;
    unix_diag_req body;
  } request{};
  request.header = {.nlmsg_len = sizeof request,
                    .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                    .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
                    .nlmsg_seq = 1,
                    .nlmsg_pid = 0};
  request.body.sdiag_family = AF_UNIX;
  request.body.udiag_states = ~0u;
  request.body.udiag_show = UDIAG_SHOW_PEER;
  if (!netlink || send(netlink.get(), &request, sizeof request, 0) < 0) return;
  alignas(nlmsghdr) std::array<char, 32768> buffer;
  for (;;) {
    const ssize_t size = recv(netlink.get(), buffer.data(), buffer.size(), 0);
    if (size <= 0) return;
    int left = static_cast<int>(size);
    for (auto* header = reinterpret_cast<nlmsghdr*>(buffer.data()); NLMSG_OK(header, left);
         header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY) return;  // the end, or an error
      const auto* message = static_cast<const unix_diag_msg*>(NLMSG_DATA(header));
      int room = static_cast<int>(NLMSG_PAYLOAD(header, sizeof *message));
      const auto* attribute = reinterpret_cast<const rtattr*>(message + 1);
      for (; RTA_OK(attribute, room); attribute = RTA_NEXT(attribute, room)) {
        std::uint32_t peer = 0;
        if (attribute->rta_type != UNIX_DIAG_PEER || RTA_PAYLOAD(attribute) < sizeof peer) continue;
        std::memcpy(&peer, RTA_DATA(attribute), sizeof peer);
        sockets_[message->udiag_ino].peer = peer;
      }
    }
  }
}

}  // namespace xmpi::preflight
