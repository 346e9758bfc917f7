// The name service: publish twice, look up from everywhere, unpublish twice. Fails if an outcome is
// not the expected one.
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static const char kPort[] = "tag#0$description#node1$port#1234$";

static int Check(const char* what, int good) {
  if (!good) printf("unexpected: %s\n", what);
  return !good;
}

int main(int argc, char** argv) {
  int rank, failed = 0;
  char port[MPI_MAX_PORT_NAME];
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    failed |= Check("publish", !MPI_Publish_name("ocean", MPI_INFO_NULL, kPort));
    failed |= Check("publish again", MPI_Publish_name("ocean", MPI_INFO_NULL, kPort));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  failed |= Check("lookup", !MPI_Lookup_name("ocean", MPI_INFO_NULL, port) && !strcmp(port, kPort));
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    failed |= Check("unpublish", !MPI_Unpublish_name("ocean", MPI_INFO_NULL, kPort));
    failed |= Check("unpublish again", MPI_Unpublish_name("ocean", MPI_INFO_NULL, kPort));
    failed |= Check("lookup after", MPI_Lookup_name("ocean", MPI_INFO_NULL, port));
  }
  MPI_Finalize();
  return failed;
}
