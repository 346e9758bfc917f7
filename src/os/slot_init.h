// The slot's init: PID 1 of a slot's PID and mount namespace. One thread, no state but the requests
// under way and what it holds. It obeys the proxy at the other end of its socket: spawn, adopt,
// hold, let go, and nothing else; it reaps every child and tells the proxy of each. When the socket
// closes it kills everything in its PID namespace, or its descendants where it is a mere child
// subreaper (no privilege), and then ends. It passes on no descriptor but those a request names.
#pragma once

#include <string>
#include <vector>

#include "base/fd.h"

namespace xmpi::os {

// Runs until the proxy is gone; never returns to its caller's stack. `lost` is what the hello
// message tells the proxy (see Slot::lost).
[[noreturn]] void RunSlotInit(Fd socket, bool namespaces, std::vector<std::string> lost);

}  // namespace xmpi::os
