#include "rank/sockets.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "wire/rank_link.h"

namespace xmpi::rank {
namespace {

template <class Do>
void ForEachSocket(const Do& act) {
  DIR* const directory = ::opendir("/proc/self/fd");
  if (directory == nullptr) return;
  while (const dirent* entry = ::readdir(directory)) {
    const int fd = std::atoi(entry->d_name);
    struct stat info = {};
    if (::fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode)) act(fd, info.st_ino);
  }
  ::closedir(directory);
}

// Empty: it does not listen, or not to the internet.
std::string ListensAt(int fd) {
  int listens = 0;
  socklen_t size = sizeof listens;
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) return {};
  union {
    sockaddr any;
    sockaddr_in four;
    sockaddr_in6 six;
  } address = {};
  size = sizeof address;
  char text[INET6_ADDRSTRLEN] = "";
  if (::getsockname(fd, &address.any, &size) != 0) return {};
  if (address.any.sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &address.four.sin_addr, text, sizeof text);
    return text + (":" + std::to_string(ntohs(address.four.sin_port)));
  }
  if (address.any.sa_family != AF_INET6) return {};
  ::inet_ntop(AF_INET6, &address.six.sin6_addr, text, sizeof text);
  return "[" + std::string(text) + "]:" + std::to_string(ntohs(address.six.sin6_port));
}

}  // namespace

Sockets sockets;

void Sockets::Begin() {
  before_.clear();
  ForEachSocket([this](int, ino_t inode) { before_.insert(inode); });
}

void Sockets::End() {
  ForEachSocket([this](int fd, ino_t inode) {
    if (before_.count(inode) == 0) listed_[inode] = ListensAt(fd);
  });
  before_.clear();
}

std::string Sockets::Text() const {
  constexpr std::size_t kRoom = rank_link::kMessageLimit - rank_link::kHeaderSize;
  std::string text = std::to_string(::getpid());
  for (const bool listening : {true, false}) {  // those that others must know of first
    for (const auto& [inode, address] : listed_) {
      if (address.empty() == listening) continue;
      const std::string word = " " + std::to_string(inode) + (address.empty() ? "" : "@" + address);
      if (text.size() + word.size() <= kRoom) text += word;
    }
  }
  return text;
}

}  // namespace xmpi::rank
