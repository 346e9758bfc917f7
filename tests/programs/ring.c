/* ring: a deterministic state that every rank mixes with its neighbours' step by step, for tests that move a
 * job many times. It ends after -steps N, or at the step after FILE appears (-until FILE), and says how many
 * steps it made, so that an undisturbed run can be compared with it bit by bit.
 *
 *   ring (-steps N | -until FILE) [-count DOUBLES] [-pause MICROSECONDS]
 */
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xmpi.h>

static int Fail(const char *text) {
  fprintf(stderr, "ring: %s\n", text);
  XMPI_Abort(XMPI_COMM_WORLD, 2);
  return 2;
}

static uint64_t Checksum(const double *values, int count) {
  uint64_t sum = 0xcbf29ce484222325u;
  const unsigned char *bytes = (const unsigned char *)values;
  for (size_t i = 0; i < (size_t)count * sizeof *values; ++i) sum = (sum ^ bytes[i]) * 0x100000001b3u;
  return sum;
}

int main(int argc, char **argv) {
  long steps = 0, moves = 0;
  int count = 4096, pause_us = 0;
  const char *until = NULL;
  if (XMPI_Init(&argc, &argv) != MPI_SUCCESS) return 2;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "-steps") == 0) steps = atol(argv[i + 1]);
    else if (strcmp(argv[i], "-until") == 0) until = argv[i + 1];
    else if (strcmp(argv[i], "-count") == 0) count = atoi(argv[i + 1]);
    else if (strcmp(argv[i], "-pause") == 0) pause_us = atoi(argv[i + 1]);
    else return Fail("usage: ring (-steps N | -until FILE) [-count DOUBLES] [-pause MICROSECONDS]");
  }
  int rank, size;
  MPI_Comm_rank(XMPI_COMM_WORLD, &rank);
  MPI_Comm_size(XMPI_COMM_WORLD, &size);
  double *mine = malloc((size_t)count * sizeof *mine), *left = malloc((size_t)count * sizeof *left);
  if (mine == NULL || left == NULL) return Fail("out of memory");
  for (int i = 0; i < count; ++i) mine[i] = 0.5 + 0.4 * sin(rank + 0.001 * i);
  long step = 0;
  for (int over = 0; !over; ++step) {
    MPI_Sendrecv(mine, count, MPI_DOUBLE, (rank + 1) % size, 1, left, count, MPI_DOUBLE,
                 (rank + size - 1) % size, 1, XMPI_COMM_WORLD, MPI_STATUS_IGNORE);
    double sum = 0, total;
    for (int i = 0; i < count; ++i) {
      const double mixed = 0.9 * mine[i] + 0.1 * left[i];
      sum += mine[i] = 3.9 * mixed * (1 - mixed); /* chaotic: one wrong bit soon changes all */
    }
    MPI_Allreduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, XMPI_COMM_WORLD);
    mine[step % count] = total / size / count;
    if (rank == 0 && step % 100 == 0) {
      printf("step %ld\n", step);
      fflush(stdout);
    }
    over = until == NULL ? step + 1 >= steps : access(until, F_OK) == 0;
    MPI_Bcast(&over, 1, MPI_INT, 0, XMPI_COMM_WORLD);
    if (pause_us > 0) usleep((useconds_t)pause_us);
    int rebuilt;
    XMPI_Quiesce(&rebuilt);
    moves += rebuilt;
  }
  uint64_t mix = Checksum(mine, count), all;
  MPI_Allreduce(&mix, &all, 1, MPI_UINT64_T, MPI_SUM, XMPI_COMM_WORLD);
  if (rank == 0) printf("steps %ld rebuilt %ld checksum 0x%016" PRIx64 "\n", step, moves, all);
  free(mine);
  free(left);
  XMPI_Finalize();
  return 0;
}
