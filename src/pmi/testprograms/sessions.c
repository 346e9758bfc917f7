// Opens and closes the MPI session again and again (argv[1] times, 3 if absent).
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  const int cycles = argc > 1 ? atoi(argv[1]) : 3;
  int failed = 0;
  for (int cycle = 0; cycle < cycles; cycle++) {
    MPI_Session session;
    MPI_Group group;
    MPI_Comm world;
    int rank, size, sum;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "cycle", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &world);
    MPI_Group_free(&group);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, world);
    failed |= sum != size * (size - 1) / 2;
    printf("cycle %d: rank %d of %d: sum %d\n", cycle, rank, size, sum);
    MPI_Comm_disconnect(&world);
    MPI_Session_finalize(&session);
  }
  return failed;
}
