// One `criu swrk` process: a CRIU that obeys one request over its socket and ends. Blocking calls
// for a worker thread; the process itself was spawned by the slot's init.
#pragma once

#include <chrono>
#include <string>

#include "base/error.h"
#include "base/fd.h"
#include "criu_rpc.pb.h"
#include "os/slot.h"

namespace xmpi::criu {

// The numbers under which criu finds what it is given.
inline constexpr int kSwrkSocketFd = 3;
inline constexpr int kSwrkImagesFd = 4;
inline constexpr int kSwrkPagesFd = 5;
inline constexpr int kSwrkFirstInheritFd = 10;

struct Swrk {
  Fd socket;
  Fd output;     // what it prints outside its log: a file in memory
  Fd directory;  // the images; not set for a mere check
  Fd pidfd;
};

// A request to spawn `criu swrk`; fills all of `swrk` but the pidfd. `theirs` is the other end of
// the socket and must stay open until the spawn is answered.
Result<os::SpawnRequest> PrepareSwrk(const std::string& criu, Swrk* swrk, Fd* theirs);

// Sends the request and waits for its answer. kTimeout kills the process; a process that ends
// without an answer is an error that quotes what it printed.
Result<rpc::criu_resp> Exchange(const Swrk& swrk, const rpc::criu_req& request,
                                std::chrono::steady_clock::time_point deadline);

// Until the process has ended, which a killed one and one that has answered soon will.
void AwaitEnd(const Swrk& swrk);

// The file in the images directory, as a whole; empty when there is none.
std::string ReadFileAt(int directory_fd, const char* name);

}  // namespace xmpi::criu
