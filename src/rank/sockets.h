// The sockets that this process will have closed when it is parked: those that appear while the MPI
// session is opened or a registered callback makes its things. The proxy must know them, since it
// cannot tell them from the program's own. It looks at /proc/self/fd; it owns none of them and
// sends nothing.
#pragma once

#include <sys/types.h>

#include <map>
#include <set>
#include <string>

namespace xmpi::rank {

class Sockets {
 public:
  // What is opened between the two is listed; also by another thread, which cannot be told.
  void Begin();
  void End();
  // All that was listed is closed.
  void Clear() { listed_.clear(); }

  // As wire/rank_link.h has it. When it would be too long, inodes at its end are left out.
  std::string Text() const;

 private:
  std::set<ino_t> before_;
  std::map<ino_t, std::string> listed_;  // and where it listens: "10.0.0.1:4711", or nothing
};

extern Sockets sockets;

}  // namespace xmpi::rank
