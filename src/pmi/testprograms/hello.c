// A classic MPI program: every rank must see every other through a collective.
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
  int rank, size, sum;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  int *universe, *appnum, found_universe, found_appnum;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &universe, &found_universe);
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &appnum, &found_appnum);
  MPI_Comm node;
  int node_size;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &node_size);
  printf("rank %d of %d: sum %d, node of %d, universe %d, appnum %d\n", rank, size, sum, node_size,
         found_universe ? *universe : -1, found_appnum ? *appnum : -1);
  MPI_Comm_free(&node);
  MPI_Finalize();
  return sum == size * (size - 1) / 2 ? 0 : 1;
}
