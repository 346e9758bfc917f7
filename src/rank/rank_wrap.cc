// Stands between a process manager and a rank in tests: connects the rank's control socket to the
// test's listening SOCK_SEQPACKET socket ($XMPI_TEST_SOCKET), names it by XMPI_FD, becomes the
// rank.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

int main(int, char** argv) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, std::getenv("XMPI_TEST_SOCKET"), sizeof address.sun_path - 1);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    std::perror("connect to the test");
    return 1;
  }
  setenv("XMPI_FD", std::to_string(fd).c_str(), 1);
  execvp(argv[1], argv + 1);
  std::perror(argv[1]);
  return 1;
}
