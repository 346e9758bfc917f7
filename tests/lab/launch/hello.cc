// As hello.c, in C++. The collectives are the same, so that both can be in one job.
#include <mpi.h>

#include <iostream>
#include <sstream>
#include <string>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size, sum;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  std::ostringstream line;
  line << "rank " << rank << " of " << size << " sum " << sum << "\n";
  std::cout << line.str();
  MPI_Finalize();
}
