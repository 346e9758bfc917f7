#include "rank/session.h"

#include <cstring>
#include <string>

#include "rank/mpich_faults.h"

MPI_Comm xmpi_comm_world = MPI_COMM_NULL;

namespace xmpi::rank {
namespace {

constexpr char kWorldName[] = "XMPI_COMM_WORLD";

const char* ThreadLevelName(int level) {
  switch (level) {
    case MPI_THREAD_MULTIPLE:
      return "MPI_THREAD_MULTIPLE";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    default:
      return "MPI_THREAD_SINGLE";
  }
}

int ThreadLevel(const char* name) {
  for (const int level : {MPI_THREAD_MULTIPLE, MPI_THREAD_SERIALIZED, MPI_THREAD_FUNNELED})
    if (std::strcmp(name, ThreadLevelName(level)) == 0) return level;
  return MPI_THREAD_SINGLE;
}

}  // namespace

Session session;

Result<> FromMpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  PMPI_Error_string(code, text, &length);
  return Fail(std::string(call) + ": " + text);
}

Result<> Session::Open(int required) {
  required_ = required;
  errhandler_ = MPI_ERRORS_ARE_FATAL;
  std::strcpy(name_, kWorldName);
  XMPI_RETURN_IF_ERROR(OpenWorld());
  mpich_faults.SessionOpened(false);
  PMPI_Comm_rank(xmpi_comm_world, &rank_);
  PMPI_Comm_size(xmpi_comm_world, &size_);
  return {};
}

Result<> Session::Reopen() {
  XMPI_RETURN_IF_ERROR(OpenWorld());
  mpich_faults.SessionOpened(true);
  int rank = -1;
  int size = 0;
  PMPI_Comm_rank(xmpi_comm_world, &rank);
  PMPI_Comm_size(xmpi_comm_world, &size);
  if (rank == rank_ && size == size_) return {};
  return Fail("the new world has rank " + std::to_string(rank) + " of " + std::to_string(size) +
              " here, the old one had " + std::to_string(rank_) + " of " + std::to_string(size_));
}

Result<> Session::OpenWorld() {
  MPI_Info info = MPI_INFO_NULL;
  PMPI_Info_create(&info);
  PMPI_Info_set(info, "thread_level", ThreadLevelName(required_));
  const int code = PMPI_Session_init(info, MPI_ERRORS_RETURN, &session_);
  PMPI_Info_free(&info);
  XMPI_RETURN_IF_ERROR(FromMpi(code, "MPI_Session_init"));
  open_ = true;

  provided_ = MPI_THREAD_SINGLE;
  if (PMPI_Session_get_info(session_, &info) == MPI_SUCCESS) {
    char level[64] = "";
    int length = sizeof level;
    int found = 0;
    PMPI_Info_get_string(info, "thread_level", &length, level, &found);
    if (found) provided_ = ThreadLevel(level);
    PMPI_Info_free(&info);
  }
  Result<> made = MakeWorld();
  if (!made) (void)Close();
  return made;
}

Result<> Session::MakeWorld() {
  MPI_Group group = MPI_GROUP_NULL;
  XMPI_RETURN_IF_ERROR(FromMpi(PMPI_Group_from_session_pset(session_, "mpi://WORLD", &group),
                               "MPI_Group_from_session_pset(mpi://WORLD)"));
  const int code = PMPI_Comm_create_from_group(group, "xmpi.world", MPI_INFO_NULL, errhandler_,
                                               &xmpi_comm_world);
  PMPI_Group_free(&group);
  XMPI_RETURN_IF_ERROR(FromMpi(code, "MPI_Comm_create_from_group(mpi://WORLD)"));
  PMPI_Comm_set_name(xmpi_comm_world, name_);
  return {};
}

Result<> Session::Close() {
  if (xmpi_comm_world != MPI_COMM_NULL) {
    int length = 0;
    PMPI_Comm_get_errhandler(xmpi_comm_world, &errhandler_);
    PMPI_Comm_get_name(xmpi_comm_world, name_, &length);
    XMPI_RETURN_IF_ERROR(FromMpi(PMPI_Comm_free(&xmpi_comm_world), "MPI_Comm_free of the world"));
  }
  open_ = false;
  return FromMpi(PMPI_Session_finalize(&session_), "MPI_Session_finalize");
}

}  // namespace xmpi::rank
