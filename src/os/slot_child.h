// The stretch between fork and exec in a process that the slot's init makes: session, cores,
// directory, descriptors, signals, then the program. A failure is written to the status pipe, which
// exec closes, so that the proxy hears why and not an exit code.
#pragma once

#include "base/fd.h"
#include "os/slot.h"
#include "os/slot_protocol.h"

namespace xmpi::os {

struct ChildFailure {
  SpawnStage stage = SpawnStage::kNone;
  int error = 0;
};

// `die_with_parent`: there is no PID namespace whose end would take the process along.
[[noreturn]] void RunChild(const SpawnRequest& request, Fd status, bool die_with_parent);

}  // namespace xmpi::os
