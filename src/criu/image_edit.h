// What CRIU's images say that is not right on another node, put right after the dump. CRIU's own
// messages are read as numbered fields, so whatever else is in them stays as it was.
#pragma once

#include <set>
#include <string>

#include "base/error.h"
#include "base/ids.h"

namespace xmpi::criu {

// In the image in `directory`: the size of each file in `paths` is not asked for, since others may
// write to a shared file meanwhile, and what is carried is compared by us. A deleted file's passing
// name has the rank in it, since ranks that are restored at once must not meet there. A periodic
// timerfd that has expired unread goes on ticking (CRIU 4.1.1 stores the zero that the kernel
// shows).
Result<> EditFileImages(int directory, RankId rank, const std::set<std::string>& paths);

}  // namespace xmpi::criu
