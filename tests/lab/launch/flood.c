/* flood MEGABYTES [lines|raw]: each rank writes so much to stdout as fast as it can, without MPI. lines: numbered lines of
 * 64 bytes, each with the rank; raw: every byte value, without structure.
 * flood 0 check RANKS MEGABYTES: reads such lines of RANKS ranks; ends with 0 when all are there, whole and in order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kLine = 64, kChunk = 1 << 16, kRanks = 4096 };

static void write_all(const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t written = write(1, bytes, size);
    if (written <= 0) exit(3);
    bytes += written;
    size -= (size_t)written;
  }
}

static void format_line(char* line, int rank, long number) {
  snprintf(line, kLine + 1, "%05d %012ld %044d\n", rank, number, 0);
}

static int check(int ranks, long bytes) {
  static long next[kRanks];
  char line[kLine + 2], expected[kLine + 2];
  while (fgets(line, sizeof line, stdin)) {
    const int rank = atoi(line);
    if (rank < 0 || rank >= ranks) return fprintf(stderr, "mixed line: %s\n", line), 1;
    format_line(expected, rank, next[rank]++);
    if (strcmp(line, expected)) return fprintf(stderr, "line: %s, expected: %s\n", line, expected), 1;
  }
  for (int rank = 0; rank < ranks; ++rank)
    if (next[rank] != bytes / kLine) return fprintf(stderr, "rank %d: %ld lines\n", rank, next[rank]), 1;
  return 0;
}

int main(int argc, char** argv) {
  if (argc > 4 && !strcmp(argv[2], "check")) return check(atoi(argv[3]), atol(argv[4]) << 20);
  const long bytes = (argc > 1 ? atol(argv[1]) : 1) << 20;
  const int raw = argc > 2 && !strcmp(argv[2], "raw");
  const int rank = atoi(getenv("PMI_RANK") ? getenv("PMI_RANK") : "0");
  static char chunk[kChunk + 1];
  unsigned random = 12345u + (unsigned)rank;
  for (long sent = 0; sent < bytes; sent += kChunk) {
    for (int i = 0; i < kChunk; i += raw ? 1 : kLine) {
      if (raw)
        chunk[i] = (char)((random = random * 1664525u + 1013904223u) >> 24);
      else
        format_line(chunk + i, rank, (sent + i) / kLine);
    }
    write_all(chunk, kChunk);
  }
  return 0;
}
