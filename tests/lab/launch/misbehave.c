/* misbehave WHAT [NUMBER]: after MPI_Init the last rank does WHAT, the others wait for it in a barrier that it
 * never enters. exit: ends without MPI_Finalize; late: ends with NUMBER after MPI_Finalize (as do all, the others
 * with 0); kill: signal NUMBER to itself; abort: MPI_Abort; wait: nothing, for ever. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "wait";
  const int number = argc > 2 ? atoi(argv[2]) : 0;
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    printf("all are here\n");
    fflush(stdout);
  }
  if (!strcmp(what, "late")) {
    MPI_Finalize();
    return rank == size - 1 ? number : 0;
  }
  if (rank == size - 1) {
    if (!strcmp(what, "exit")) _exit(number);
    if (!strcmp(what, "kill")) kill(getpid(), number);
    if (!strcmp(what, "abort")) MPI_Abort(MPI_COMM_WORLD, number);
    for (;;) pause();
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
