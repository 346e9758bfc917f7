// hello: the same in C++.
#include <mpi.h>

#include <iostream>
#include <sstream>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0, length = 0, sum = 0;
  char name[MPI_MAX_PROCESSOR_NAME];
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Get_processor_name(name, &length);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  std::ostringstream line;  // one write a line, so that lines of ranks do not mix
  line << "hello from rank " << rank << " of " << size << " on " << name << ", sum " << sum << "\n";
  std::cout << line.str() << std::flush;
  MPI_Finalize();
}
