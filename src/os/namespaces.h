// Namespaces, mounts and PIDs as system calls with readable errors. Stateless; owns nothing but the
// descriptors it returns.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace xmpi::os {

// For the first process of a new PID and mount namespace: mounts become slave, so nothing leaks
// out; the root becomes a mount of its own where it is a plain directory (a chroot), since CRIU
// wants to see every mount's parent; /proc and, where the node has it, /dev/shm are mounted anew.
Result<> SetUpSlotMounts();

// Children forked until LeaveChildTimeNamespace get a new time namespace whose clocks go on from
// the caller's. Single-threaded callers only. Returns the caller's own namespace.
Result<Fd> EnterChildTimeNamespace();
Result<> LeaveChildTimeNamespace(const Fd& own);

// A memory-backed directory that no path leads to: it is gone with its last descriptor, so nothing
// is left after a crash. `limit_bytes` bounds what it takes. A plain user gets it from a user
// namespace that lasts only for the making.
Result<Fd> MakeMemoryDirectory(std::uint64_t limit_bytes);

// The PID of a pidfd's process in our own PID namespace.
Result<pid_t> HostPid(int pidfd);
// The thread of `host_pid` that its own PID namespace calls `tid`, as we see it.
Result<pid_t> HostTid(pid_t host_pid, pid_t tid);
// Binds every thread of the process to these cores.
Result<> BindProcess(pid_t host_pid, std::span<const int> cpus);

// A number such that none of the next `room` PIDs after it is in `used`, for helpers that must not
// take the PID of a process still to be restored. 0 when there is none below `pid_max`.
pid_t PidsFreeAfter(std::span<const pid_t> used, pid_t room, pid_t pid_max);

}  // namespace xmpi::os
