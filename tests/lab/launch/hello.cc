// As hello.c, in C++.
#include <mpi.h>

#include <iostream>
#include <numeric>
#include <sstream>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<int> all(size);
  MPI_Allgather(&rank, 1, MPI_INT, all.data(), 1, MPI_INT, MPI_COMM_WORLD);
  std::ostringstream line;
  line << "rank " << rank << " of " << size << " sum " << std::accumulate(all.begin(), all.end(), 0)
       << "\n";
  std::cout << line.str();
  MPI_Finalize();
}
