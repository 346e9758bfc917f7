#include "rank/arrive.h"

#include <dlfcn.h>

#include <vector>

#include "rank/books.h"
#include "rank/keeping.h"
#include "rank/mpich_faults.h"
#include "rank/session.h"

namespace xmpi::rank {
namespace {

// A message may reach this rank a little after the barrier does, on another connection; each round
// is one turn of MPI's progress engine.
constexpr int kProbeRounds = 32;

std::string Label(MPI_Comm comm) {
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  PMPI_Comm_get_name(comm, name, &length);
  return length > 0 ? name : "an unnamed communicator";
}

std::vector<MPI_Comm> KnownComms() {
  std::vector<MPI_Comm> comms = {session.world()};
  for (const MPI_Comm comm : keeping.Comms()) comms.push_back(comm);
  for (const MPI_Comm comm : books.Comms())
    if (!keeping.Holds(comm)) comms.push_back(comm);
  return comms;
}

}  // namespace

std::string Obstacle() {
  int initialized = 0;
  int finalized = 0;
  PMPI_Initialized(&initialized);
  PMPI_Finalized(&finalized);
  if (initialized && !finalized)
    return "MPI_Init was called beside XMPI_Init, and keeps its connections open";
  if (std::string text = keeping.Obstacle(); !text.empty()) return text;
  if (std::string text = mpich_faults.Obstacle(); !text.empty()) return text;
  return books.Obstacle([](MPI_Comm comm) { return keeping.Holds(comm); });
}

std::string UnmatchedMessage() {
  const std::vector<MPI_Comm> comms = KnownComms();
  for (int round = 0; round < kProbeRounds; ++round) {
    for (const MPI_Comm comm : comms) {
      int found = 0;
      MPI_Status status;
      if (PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &found, &status) != MPI_SUCCESS || !found)
        continue;
      MPI_Count bytes = 0;
      PMPI_Get_elements_x(&status, MPI_BYTE, &bytes);
      return "unmatched message on " + Label(comm) + " from its rank " +
             std::to_string(status.MPI_SOURCE) + ", tag " + std::to_string(status.MPI_TAG) + ", " +
             std::to_string(bytes) + " bytes: receive it before the safe point";
    }
  }
  return {};
}

std::string WhyBooksAreBlind() {
  Dl_info used = {};
  Dl_info ours = {};
  if (dladdr(reinterpret_cast<void*>(&MPI_Isend), &used) == 0 ||
      dladdr(reinterpret_cast<void*>(&WhyBooksAreBlind), &ours) == 0 ||
      used.dli_fbase == ours.dli_fbase)
    return {};
  return "pending requests and forgotten objects are not seen: MPI_Isend comes from " +
         std::string(used.dli_fname) + "; link libxmpi before the MPI library";
}

}  // namespace xmpi::rank
