/* Every rank says who and where it is, after a sum that needs all of them. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
  int rank, size, length, sum, found, *universe, *appnum;
  char host[MPI_MAX_PROCESSOR_NAME];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Get_processor_name(host, &length);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &universe, &found);
  printf("rank %d of %d on %s sum %d universe %d", rank, size, host, sum, found ? *universe : 0);
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &appnum, &found);
  printf(" appnum %d\n", found ? *appnum : -1);
  MPI_Finalize();
  return 0;
}
