// CRIU for a plain user: without namespaces of the slot's own, criu has no privilege but the file
// capabilities of its binary. Whether they are there, and the command that sets them.
#pragma once

#include <chrono>

#include "base/error.h"
#include "criu/swrk.h"

namespace xmpi::criu {

// The last request of this criu process, which has an images directory. An error says what is
// missing, and what root must do about it.
Result<> CheckUnprivileged(const Swrk& swrk, std::chrono::steady_clock::time_point deadline);

}  // namespace xmpi::criu
