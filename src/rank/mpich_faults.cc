#include "rank/mpich_faults.h"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdio>
#include <cstring>

namespace xmpi::rank {
namespace {

// Measured on 4.2.1: every session of several ranks, and the most that one has been seen to take.
constexpr int kEntries = 256;
constexpr int kEntriesOfASession = 5;
constexpr int kMostOfASession = 12;

constexpr unsigned Bit(Pool pool) { return 1u << static_cast<unsigned>(pool); }

int EntriesOf(unsigned used) {
  int entries = kEntriesOfASession;
  for (const Pool pool :
       {Pool::kType, Pool::kOp, Pool::kErrhandler, Pool::kWindow, Pool::kTopology})
    entries += (used & Bit(pool)) != 0 ? 1 : 0;
  // A topology is kept in an attribute.
  if ((used & (Bit(Pool::kKeyval) | Bit(Pool::kTopology))) != 0) entries += 2;
  return entries;
}

// Of no bytes, so that they take a handle and nothing else. They are not freed: MPICH would refuse
// that, taking them for predefined ones.
void SpendPairTypeHandles() {
  for (int i = 0; i < 5; ++i) {
    MPI_Datatype unused;
    PMPI_Type_contiguous(0, MPI_BYTE, &unused);
  }
}

}  // namespace

MpichFaults mpich_faults;

void MpichFaults::ReadVersion() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  PMPI_Get_library_version(text, &length);
  const char* version = std::strstr(text, "MPICH Version:");
  is_mpich_ =
      version != nullptr && std::sscanf(version, "MPICH Version: %d.%d", &major_, &minor_) == 2;
}

void MpichFaults::SessionOpened(bool again) {
  if (!again) ReadVersion();
  if (sessions_ > 0) earlier_entries_ += EntriesOf(used_);
  ++sessions_;
  __atomic_store_n(&used_, 0u, __ATOMIC_RELAXED);
  if (again && is_mpich_ && major_ == 4 && minor_ <= 3) {
    Use(Pool::kType);
    SpendPairTypeHandles();
  }
}

void MpichFaults::Use(Pool pool) { __atomic_fetch_or(&used_, Bit(pool), __ATOMIC_RELAXED); }

int MpichFaults::entries() const {
  return earlier_entries_ + EntriesOf(__atomic_load_n(&used_, __ATOMIC_RELAXED));
}

std::string MpichFaults::Obstacle() const {
  if (!is_mpich_ || entries() + kMostOfASession <= kEntries) return {};
  return "MPICH " + std::to_string(major_) + "." + std::to_string(minor_) +
         " never empties its table of cleanup functions and has no room for another session "
         "after " +
         std::to_string(sessions_) + " in this process: the job cannot move any more";
}

}  // namespace xmpi::rank
