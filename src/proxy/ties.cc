#include "proxy/ties.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "base/check.h"

namespace xmpi::proxy {
namespace {

using image::TieKind;

Result<std::pair<Fd, Fd>> MakeSockets(int type) {
  int ends[2];
  if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) != 0)
    return std::unexpected(ErrnoError("socketpair"));
  return std::pair(Fd(ends[0]), Fd(ends[1]));
}

// The first end is ours.
Result<std::pair<Fd, Fd>> MakePipe(bool we_read) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::unexpected(ErrnoError("pipe"));
  Fd read_end(ends[0]), write_end(ends[1]);
  if (we_read) return std::pair(std::move(read_end), std::move(write_end));
  return std::pair(std::move(write_end), std::move(read_end));
}

Result<std::pair<Fd, Fd>> MakePair(TieKind kind) {
  switch (kind) {
    case TieKind::kControl:
      return MakeSockets(SOCK_SEQPACKET);
    case TieKind::kPmi:
      return MakeSockets(SOCK_STREAM);
    case TieKind::kStdin:
      return MakePipe(false);
    case TieKind::kStdout:
    case TieKind::kStderr:
      return MakePipe(true);
  }
  return Fail("no such tie");
}

}  // namespace

int NumberInRank(TieKind kind) {
  switch (kind) {
    case TieKind::kControl:
      return kControlFd;
    case TieKind::kPmi:
      return kPmiFd;
    case TieKind::kStdin:
      return STDIN_FILENO;
    case TieKind::kStdout:
      return STDOUT_FILENO;
    case TieKind::kStderr:
      return STDERR_FILENO;
  }
  XMPI_CHECK(false);
}

Result<std::vector<TieEnds>> MakeTies(bool takes_stdin) {
  std::vector<TieEnds> ties;
  for (TieKind kind :
       {TieKind::kControl, TieKind::kPmi, TieKind::kStdin, TieKind::kStdout, TieKind::kStderr}) {
    if (kind == TieKind::kStdin && !takes_stdin) continue;
    XMPI_ASSIGN_OR_RETURN(auto ends, MakePair(kind));
    struct stat info{};
    if (fstat(ends.second.get(), &info) != 0) return std::unexpected(ErrnoError("fstat"));
    if (fcntl(ends.first.get(), F_SETFL, fcntl(ends.first.get(), F_GETFL) | O_NONBLOCK) != 0)
      return std::unexpected(ErrnoError("fcntl"));
    ties.push_back({kind, std::move(ends.first), std::move(ends.second), info.st_ino});
  }
  return ties;
}

std::vector<criu::Tie> ForDump(const std::vector<TieEnds>& ties) {
  std::vector<criu::Tie> result;
  for (const TieEnds& tie : ties) result.push_back({tie.kind, tie.inode});
  return result;
}

}  // namespace xmpi::proxy
