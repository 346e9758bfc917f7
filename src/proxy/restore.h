// restore: every rank of the slot comes to life from its image, in parallel, under its old PIDs and
// with new ends of its ties under the old numbers; still parked. All of them or none.
#pragma once

#include <sys/types.h>

#include <asio.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "criu/checkpointer.h"
#include "os/slot.h"
#include "proxy/ranks.h"
#include "proxy/transfer.h"
#include "wire/control.pb.h"

namespace xmpi::proxy {

// Ends whatever in the slot has a PID that the images need (an earlier restore may have left it),
// and calls `done` when those PIDs are free or will not be; not if what it returns has gone before.
std::shared_ptr<void> FreePids(asio::io_context& loop, std::vector<pid_t> pids, os::Slot* slot,
                               criu::Checkpointer* checkpointer,
                               std::function<void(Result<>)> done);

// `done` gets the places of all ranks, which are in `ranks` by then; or the first failure, with
// nothing left running in the slot. `timeout` is CRIU's for each rank.
void RestoreRanks(std::vector<HeldImage> images, const std::string& bind_to,
                  std::chrono::milliseconds timeout, os::Slot* slot,
                  criu::Checkpointer* checkpointer, Ranks* ranks,
                  std::function<void(Result<std::vector<wire::RankPlace>>)> done);

}  // namespace xmpi::proxy
