#include "criu/ties.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <format>

#include "base/fd.h"

namespace xmpi::criu {
namespace {

bool IsOpen(const std::vector<OpenFd>& fds, const std::string& target) {
  return std::any_of(fds.begin(), fds.end(), [&](const OpenFd& fd) { return fd.target == target; });
}

// The access mode of a descriptor of another process, from its fdinfo.
bool IsReadEnd(int proc_fd, const OpenFd& fd) {
  const std::string path = std::format("{}/fdinfo/{}", fd.pid, fd.fd);
  const Fd file(openat(proc_fd, path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(512, '\0');
  const ssize_t size = file ? read(file.get(), text.data(), text.size()) : -1;
  const std::size_t flags = size > 0 ? text.find("flags:") : std::string::npos;
  if (flags == std::string::npos) return false;
  return (std::strtol(text.c_str() + flags + 6, nullptr, 8) & O_ACCMODE) != O_WRONLY;
}

Result<> ReadExactly(int fd, std::string* bytes) {
  for (std::size_t at = 0; at < bytes->size();) {
    const ssize_t size = read(fd, bytes->data() + at, bytes->size() - at);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return std::unexpected(ErrnoError("read a copied pipe"));
    at += static_cast<std::size_t>(size);
  }
  return {};
}

}  // namespace

std::vector<image::ManifestTie> FindTies(const std::vector<OpenFd>& fds,
                                         std::span<const Tie> ties) {
  std::vector<image::ManifestTie> found;
  for (const Tie& tie : ties) {
    const bool known = std::any_of(found.begin(), found.end(), [&](const image::ManifestTie& t) {
      return t.inode == tie.inode;
    });
    const bool is_pipe = IsOpen(fds, std::format("pipe:[{}]", tie.inode));
    if (known || (!is_pipe && !IsOpen(fds, std::format("socket:[{}]", tie.inode)))) continue;
    found.push_back({.kind = tie.kind, .is_pipe = is_pipe, .inode = tie.inode, .unread = {}});
  }
  return found;
}

Result<> CaptureUnread(int proc_fd, const std::vector<OpenFd>& fds,
                       std::vector<image::ManifestTie>* ties) {
  for (image::ManifestTie& tie : *ties) {
    if (!tie.is_pipe) continue;
    const std::string target = std::format("pipe:[{}]", tie.inode);
    const auto end = std::find_if(fds.begin(), fds.end(), [&](const OpenFd& fd) {
      return fd.target == target && IsReadEnd(proc_fd, fd);
    });
    if (end == fds.end()) continue;
    const std::string path = std::format("{}/fd/{}", end->pid, end->fd);
    const Fd pipe(openat(proc_fd, path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (!pipe) return std::unexpected(ErrnoError(std::format("open {} of the rank", target)));
    XMPI_ASSIGN_OR_RETURN(tie.unread, PeekPipe(pipe.get()));
  }
  return {};
}

Result<std::string> PeekPipe(int fd) {
  int unread = 0;
  if (ioctl(fd, FIONREAD, &unread) != 0) return std::unexpected(ErrnoError("FIONREAD"));
  if (unread == 0) return std::string();
  if (static_cast<std::size_t>(unread) > image::kMaxUnreadBytes) {
    return Fail(std::format("{} unread bytes in a pipe are too many to carry", unread));
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::unexpected(ErrnoError("pipe"));
  const Fd read_end(ends[0]), write_end(ends[1]);
  // tee copies buffer by buffer, so the copy needs as many of them as the pipe has.
  const int capacity = fcntl(fd, F_GETPIPE_SZ);
  if (capacity < 0 || fcntl(write_end.get(), F_SETPIPE_SZ, capacity) < 0) {
    return std::unexpected(ErrnoError("size a pipe"));
  }
  const ssize_t copied =
      tee(fd, write_end.get(), static_cast<std::size_t>(unread), SPLICE_F_NONBLOCK);
  if (copied != unread) {
    return copied < 0 ? std::unexpected(ErrnoError("tee"))
                      : Fail(std::format("copied only {} of {} unread bytes", copied, unread));
  }
  std::string bytes(static_cast<std::size_t>(unread), '\0');
  XMPI_RETURN_IF_ERROR(ReadExactly(read_end.get(), &bytes));
  return bytes;
}

Result<> FillPipe(int fd, std::string_view bytes) {
  if (bytes.empty()) return {};
  // A descriptor of the other end, which the caller need not have at hand.
  const std::string path = std::format("/proc/self/fd/{}", fd);
  const Fd end(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  if (!end) return std::unexpected(ErrnoError("open a pipe to fill it"));
  const int needed = static_cast<int>(bytes.size());
  if (fcntl(end.get(), F_GETPIPE_SZ) < needed && fcntl(end.get(), F_SETPIPE_SZ, needed) < 0) {
    return std::unexpected(ErrnoError("make a pipe larger"));
  }
  while (!bytes.empty()) {
    const ssize_t size = write(end.get(), bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return std::unexpected(ErrnoError("put unread bytes back"));
    bytes.remove_prefix(static_cast<std::size_t>(size));
  }
  return {};
}

}  // namespace xmpi::criu
