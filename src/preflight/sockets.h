// The sockets of a network namespace as /proc/PID/net and the kernel's socket diagnosis show them:
// what an inode is, in words. Reads only.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "wire/preflight.pb.h"

namespace xmpi::preflight {

struct SocketFacts {
  wire::Held::Kind kind = wire::Held::OTHER_SOCKET;
  std::string text;        // "TCP 10.0.0.1:4711 -> 10.0.0.2:80", "TCP listening on 0.0.0.0:80"
  std::uint64_t peer = 0;  // UNIX_SOCKET: the other end's inode; 0: none, or not known
  std::string local{};     // TCP, UDP: "10.0.0.1:4711"
  std::string remote{};    // where it leads; empty: nowhere
};

class Sockets {
 public:
  // `process`: "/proc/12". The Unix sockets' peers are those of our own network namespace.
  explicit Sockets(const std::string& process);
  // What the tables do not have, a TCP socket without an address for one, has only its protocol;
  // `link` is the socket's path in /proc/PID/fd.
  SocketFacts Find(std::uint64_t inode, const std::string& link) const;

 private:
  void ReadInternet(const std::string& file, const char* protocol, wire::Held::Kind kind);
  void ReadUnix(const std::string& file);
  void ReadOther(const std::string& file, const char* kind, const char* inode_column);
  void AskForPeers();

  std::map<std::uint64_t, SocketFacts> sockets_;
};

}  // namespace xmpi::preflight
