// The one MPI session of this rank and the world communicator made from it. Open and Close may
// alternate; the world's rank and size are the same each time, which is checked. It owns the
// session and xmpi_comm_world; it knows nothing of notices, bound objects or the control socket.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include "base/error.h"
#include "xmpi.h"

namespace xmpi::rank {

// An MPI return code as a Result, "call: MPI's own words".
Result<> FromMpi(int code, const char* call);

class Session {
 public:
  // The first time `required` decides the thread level, which is kept for every later time.
  Result<> Open(int required);
  Result<> Reopen();
  Result<> Close();

  bool open() const { return open_; }
  MPI_Comm world() const { return xmpi_comm_world; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  int provided() const { return provided_; }

 private:
  Result<> OpenWorld();
  Result<> MakeWorld();

  MPI_Session session_ = MPI_SESSION_NULL;
  bool open_ = false;
  int required_ = MPI_THREAD_SINGLE;
  int provided_ = MPI_THREAD_SINGLE;
  int rank_ = -1;
  int size_ = 0;
  // What the program set on the world, carried over to the next one.
  MPI_Errhandler errhandler_ = MPI_ERRHANDLER_NULL;
  char name_[MPI_MAX_OBJECT_NAME] = "";
};

extern Session session;

}  // namespace xmpi::rank
