/* heat2d: heat spreading over a square plate, explicit steps on a grid that the ranks share in
 * blocks. A small but honest MPI program that can move between two of its steps: the world comes
 * from XMPI_Init, the cartesian communicator is bound, and each step ends at a safe point.
 *
 *   heat2d [-size N] [-steps N] [-print-every N] [-o PICTURE.pgm]
 *
 * The result does not depend on where the ranks ran: the last line is a checksum over every bit of
 * the final field in the order of the grid.
 */
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xmpi.h>

enum { kHaloTag = 1, kGatherTag = 2, kLowest = 0, kHighest = 255 };

typedef struct {
  int size;        /* of the plate: size x size points inside a fixed edge */
  int steps;
  int print_every; /* steps between two lines of progress; 0: none */
  const char *picture;
} Options;

typedef struct {
  int first[2], count[2]; /* this rank's points: rows, columns */
  int width;              /* of a row with its halo */
  double *now, *next;
  double *out[2], *in[2]; /* columns for the halo exchange, left and right */
} Block;

static MPI_Comm grid; /* bound: stays valid when the job moves */
static int rank, ranks;

static void Stop(const char *text, const char *what) {
  if (rank == 0) fprintf(stderr, "heat2d: %s%s\n", text, what);
  XMPI_Abort(XMPI_COMM_WORLD, 2);
  exit(2);
}

static int NumberOf(const char *option, const char *text, int least) {
  char *end = NULL;
  const long number = text == NULL ? 0 : strtol(text, &end, 10);
  if (text == NULL || end == text || *end != '\0' || number < least || number > 1 << 20)
    Stop("a number up to 1048576 must follow ", option);
  return (int)number;
}

static Options ReadOptions(int argc, char **argv) {
  Options options = {.size = 1024, .steps = 16000, .print_every = 1000, .picture = NULL};
  for (int i = 1; i < argc; i += 2) {
    const char *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (strcmp(argv[i], "-size") == 0)
      options.size = NumberOf(argv[i], value, 1);
    else if (strcmp(argv[i], "-steps") == 0)
      options.steps = NumberOf(argv[i], value, 0);
    else if (strcmp(argv[i], "-print-every") == 0)
      options.print_every = NumberOf(argv[i], value, 0);
    else if (strcmp(argv[i], "-o") == 0 && value != NULL)
      options.picture = value;
    else
      Stop("usage: heat2d [-size N] [-steps N] [-print-every N] [-o PICTURE.pgm], not ", argv[i]);
  }
  return options;
}

/* The part `index` of `parts` of `length` points. */
static void Share(int length, int parts, int index, int *first, int *count) {
  *first = (int)((int64_t)length * index / parts);
  *count = (int)((int64_t)length * (index + 1) / parts) - *first;
}

static double *Zeros(size_t count) {
  double *values = calloc(count > 0 ? count : 1, sizeof *values);
  if (values == NULL) Stop("out of memory", "");
  return values;
}

static double *At(const Block *block, double *field, int row, int column) {
  return field + (size_t)(row + 1) * block->width + (column + 1);
}

static void BlockOf(int grid_rank, int size, int first[2], int count[2]) {
  int dims[2], periods[2], place[2];
  MPI_Cart_get(grid, 2, dims, periods, place);
  MPI_Cart_coords(grid, grid_rank, 2, place);
  for (int d = 0; d < 2; ++d) Share(size, dims[d], place[d], &first[d], &count[d]);
}

/* A cold plate whose upper edge is hot, with a warm disc inside: smooth, and different everywhere. */
static Block MakeBlock(int size) {
  Block block;
  BlockOf(rank, size, block.first, block.count);
  block.width = block.count[1] + 2;
  const size_t points = (size_t)(block.count[0] + 2) * block.width;
  block.now = Zeros(points);
  block.next = Zeros(points);
  for (int side = 0; side < 2; ++side) {
    block.out[side] = Zeros(block.count[0]);
    block.in[side] = Zeros(block.count[0]);
  }
  for (int row = -1; row <= block.count[0]; ++row) {
    for (int column = -1; column <= block.count[1]; ++column) {
      const double y = (block.first[0] + row + 1.0) / (size + 1);
      const double x = (block.first[1] + column + 1.0) / (size + 1);
      double heat = block.first[0] + row < 0 ? 1.0 : 0.0;
      if ((x - 0.6) * (x - 0.6) + (y - 0.7) * (y - 0.7) < 0.04) heat = 0.75;
      *At(&block, block.now, row, column) = heat;
      *At(&block, block.next, row, column) = heat;
    }
  }
  return block;
}

static void ExchangeHalo(Block *block) {
  const int rows = block->count[0], columns = block->count[1];
  int up, down, left, right;
  MPI_Request requests[8];
  MPI_Cart_shift(grid, 0, 1, &up, &down);
  MPI_Cart_shift(grid, 1, 1, &left, &right);
  for (int row = 0; row < rows; ++row) {
    block->out[0][row] = *At(block, block->now, row, 0);
    block->out[1][row] = *At(block, block->now, row, columns - 1);
  }
  double *now = block->now;
  MPI_Irecv(At(block, now, -1, 0), columns, MPI_DOUBLE, up, kHaloTag, grid, &requests[0]);
  MPI_Irecv(At(block, now, rows, 0), columns, MPI_DOUBLE, down, kHaloTag, grid, &requests[1]);
  MPI_Irecv(block->in[0], rows, MPI_DOUBLE, left, kHaloTag, grid, &requests[2]);
  MPI_Irecv(block->in[1], rows, MPI_DOUBLE, right, kHaloTag, grid, &requests[3]);
  MPI_Isend(At(block, now, 0, 0), columns, MPI_DOUBLE, up, kHaloTag, grid, &requests[4]);
  MPI_Isend(At(block, now, rows - 1, 0), columns, MPI_DOUBLE, down, kHaloTag, grid, &requests[5]);
  MPI_Isend(block->out[0], rows, MPI_DOUBLE, left, kHaloTag, grid, &requests[6]);
  MPI_Isend(block->out[1], rows, MPI_DOUBLE, right, kHaloTag, grid, &requests[7]);
  MPI_Waitall(8, requests, MPI_STATUSES_IGNORE);
  for (int row = 0; row < rows; ++row) {
    if (left != MPI_PROC_NULL) *At(block, now, row, -1) = block->in[0][row];
    if (right != MPI_PROC_NULL) *At(block, now, row, columns) = block->in[1][row];
  }
}

/* One step; the sum of the squares of what changed here. */
static double Advance(Block *block) {
  double change = 0.0;
  const int width = block->width;
  for (int row = 0; row < block->count[0]; ++row) {
    const double *from = At(block, block->now, row, 0);
    double *to = At(block, block->next, row, 0);
    for (int column = 0; column < block->count[1]; ++column, ++from, ++to) {
      const double flow = from[-width] + from[width] + from[-1] + from[1] - 4.0 * from[0];
      *to = from[0] + 0.2 * flow;
      change += flow * flow;
    }
  }
  double *was = block->now;
  block->now = block->next;
  block->next = was;
  return change;
}

static void PrintProgress(int step, double residual) {
  char host[256] = "?";
  gethostname(host, sizeof host - 1);
  printf("step %d residual %.6e host %s pid %d\n", step, residual, host, (int)getpid());
  fflush(stdout);
}

static void Run(const Options *options, Block *block) {
  for (int step = 1; step <= options->steps; ++step) {
    ExchangeHalo(block);
    const double change = Advance(block);
    double residual = 0.0;
    MPI_Allreduce(&change, &residual, 1, MPI_DOUBLE, MPI_SUM, grid);
    if (rank == 0 && options->print_every > 0 && step % options->print_every == 0)
      PrintProgress(step, sqrt(residual));
    XMPI_Quiesce(NULL);
  }
}

/* Rank 0 gets the whole field, row by row; NULL elsewhere. */
static double *Gather(const Block *block, int size) {
  const int points = block->count[0] * block->count[1];
  double *mine = Zeros(points);
  for (int row = 0; row < block->count[0]; ++row)
    memcpy(mine + (size_t)row * block->count[1], At(block, block->now, row, 0),
           block->count[1] * sizeof *mine);
  if (rank != 0) {
    MPI_Send(mine, points, MPI_DOUBLE, 0, kGatherTag, grid);
    free(mine);
    return NULL;
  }
  double *field = Zeros((size_t)size * size);
  for (int source = 0; source < ranks; ++source) {
    int first[2], count[2];
    BlockOf(source, size, first, count);
    double *theirs = source == 0 ? mine : Zeros((size_t)count[0] * count[1]);
    if (source != 0)
      MPI_Recv(theirs, count[0] * count[1], MPI_DOUBLE, source, kGatherTag, grid,
               MPI_STATUS_IGNORE);
    for (int row = 0; row < count[0]; ++row)
      memcpy(field + (size_t)(first[0] + row) * size + first[1], theirs + (size_t)row * count[1],
             count[1] * sizeof *field);
    free(theirs);
  }
  return field;
}

/* 64-bit FNV-1a over the bytes of the field. */
static uint64_t Checksum(const double *field, size_t count) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < count; ++i) {
    uint64_t bits;
    memcpy(&bits, &field[i], sizeof bits);
    for (int shift = 0; shift < 64; shift += 8) {
      hash ^= bits >> shift & 0xff;
      hash *= UINT64_C(0x100000001b3);
    }
  }
  return hash;
}

static void WritePicture(const char *path, const double *field, int size) {
  FILE *file = fopen(path, "wb");
  if (file == NULL) Stop("cannot write ", path);
  fprintf(file, "P5\n%d %d\n%d\n", size, size, kHighest);
  for (size_t i = 0; i < (size_t)size * size; ++i) {
    const double grey = sqrt(fmin(fmax(field[i], 0.0), 1.0)) * kHighest;
    fputc((int)fmin(fmax(grey, kLowest), kHighest), file);
  }
  if (fclose(file) != 0) Stop("cannot write ", path);
}

int main(int argc, char **argv) {
  if (XMPI_Init(&argc, &argv) != MPI_SUCCESS) return 1;
  MPI_Comm_rank(XMPI_COMM_WORLD, &rank);
  MPI_Comm_size(XMPI_COMM_WORLD, &ranks);
  const Options options = ReadOptions(argc, argv);

  int dims[2] = {0, 0};
  const int periods[2] = {0, 0};
  MPI_Dims_create(ranks, 2, dims);
  if (options.size < dims[0]) Stop("more ranks than points: choose a greater -size", "");
  MPI_Cart_create(XMPI_COMM_WORLD, 2, dims, periods, 0, &grid);
  XMPI_Comm_bind(&grid);

  Block block = MakeBlock(options.size);
  Run(&options, &block);

  double *field = Gather(&block, options.size);
  if (rank == 0) {
    const uint64_t sum = Checksum(field, (size_t)options.size * options.size);
    if (options.picture != NULL) WritePicture(options.picture, field, options.size);
    printf("checksum 0x%016" PRIx64 "\n", sum);
    free(field);
  }
  free(block.now), free(block.next);
  for (int side = 0; side < 2; ++side) free(block.out[side]), free(block.in[side]);
  return XMPI_Finalize() == MPI_SUCCESS ? 0 : 1;
}
