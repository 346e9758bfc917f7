// How to make a communicator again after its session is gone: members as world ranks, topology,
// name and error handler. A value; it owns no communicator, only a reference to an error handler
// (these outlive sessions). Attributes and info hints are not carried.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace xmpi::rank {

class CommRecipe {
 public:
  // Members and topology of `comm`, all of whose members must be in `world`. `number` tells
  // communicators with a common member apart; all members give the same.
  static Result<CommRecipe> Of(MPI_Comm comm, MPI_Comm world, int number);

  // Name and error handler may change until the end: read just before `comm` is freed.
  void NoteLastState(MPI_Comm comm);

  // Collective over the members.
  Result<MPI_Comm> Make(MPI_Comm world) const;

  const std::vector<int>& members() const { return members_; }

 private:
  Result<> ReadMembers(MPI_Comm comm, MPI_Comm world);
  Result<> ReadTopology(MPI_Comm comm);
  Result<MPI_Comm> MakePlain(MPI_Comm world) const;
  Result<> AddTopology(MPI_Comm plain, MPI_Comm* made) const;

  int number_ = 0;
  std::vector<int> members_;
  int topology_ = MPI_UNDEFINED;
  std::vector<int> dims_, periods_;                        // MPI_CART
  std::vector<int> index_, edges_;                         // MPI_GRAPH
  std::vector<int> sources_, destinations_;                // MPI_DIST_GRAPH
  std::vector<int> source_weights_, destination_weights_;  // of the same sizes
  bool weighted_ = false;
  std::string name_;
  MPI_Errhandler errhandler_ = MPI_ERRHANDLER_NULL;
};

}  // namespace xmpi::rank
