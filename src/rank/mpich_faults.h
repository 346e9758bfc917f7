// What MPICH does wrong when sessions are opened again and again in one process, and what we do
// about it. Found by the version it reports; on any other MPI these functions do nothing.
//
// 1. Its table of cleanup functions (256 entries in 4.x) is never emptied: each session adds one
//    entry for each kind of object first used in it, and when the table is full MPICH aborts. So
//    the entries are counted, and a rank that may not have room for another session refuses to
//    move.
// 2. MPICH 4.0 to 4.3 loses the five predefined pair types at a reopening and hands their handles
//    to the next five derived types, which MPI_Type_commit then takes for predefined and skips.
#pragma once

#include <cstdint>
#include <string>

namespace xmpi::rank {

// Kinds of objects that cost entries, beyond what every session costs.
enum class Pool : std::uint8_t { kType, kOp, kErrhandler, kWindow, kKeyval, kTopology };

class MpichFaults {
 public:
  // After each opening of a session; `again` for all but the first.
  void SessionOpened(bool again);
  // The program, or we, may now make an object of this kind. Any thread.
  void Use(Pool pool);
  // Why no further session can be opened; empty while one can.
  std::string Obstacle() const;

  // Entries used so far, for tests.
  int entries() const;

 private:
  void ReadVersion();

  bool is_mpich_ = false;
  int major_ = 0;
  int minor_ = 0;
  int sessions_ = 0;
  int earlier_entries_ = 0;  // of the sessions before the present one
  unsigned used_ = 0;        // pools of the present one, a bit each
};

extern MpichFaults mpich_faults;

}  // namespace xmpi::rank
