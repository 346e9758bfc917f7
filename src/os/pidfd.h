// The pidfd system calls. glibc's <sys/pidfd.h> declares them without extern "C", so C++ cannot
// link with it. Errors are -1 and errno, as of the calls themselves.
#pragma once

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

namespace xmpi::os {

inline int PidfdOpen(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

// `fd` is a pidfd, or a directory /proc/PID.
inline int PidfdSendSignal(int fd, int signal) {
  return static_cast<int>(syscall(SYS_pidfd_send_signal, fd, signal, nullptr, 0));
}

}  // namespace xmpi::os
