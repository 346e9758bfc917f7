/* churn: a job whose memory and the pace at which it changes are given, for measuring moves. A step
 * rewrites the next pages of each large rank, sums over all ranks and ends at a safe point; steps
 * begin on a clock of kStepsPerSecond as long as the machine keeps up. What a page holds follows
 * from rank, page and how often it was written, so every rank checks all of its memory after a move
 * and at the end, and runs of as many steps end with the same checksum.
 *
 *   churn -memory MIB [-large RANKS] [-rewrite PERCENT_PER_SECOND] (-steps N | -until FILE)
 *   churn -memory MIB -park FILE
 *
 *   -large    only the ranks below RANKS have so much memory; the others have 1 MiB and rewrite as
 * large a share -park     without a launcher: a process as a rank is that has stopped at a safe
 * point, its MPI session closed. Says "parked PID" in FILE and sleeps; SIGTERM makes it check its
 * memory and say the checksum there.
 *
 * The last rank writes "step N SECONDS" (wall clock) 20 times a second; rank 0 ends with one line
 * "steps N seconds S checksum C".
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include <xmpi.h>

enum { kPageBytes = 4096, kPagesPerMebibyte = 256, kStepsPerSecond = 100, kLinesPerSecond = 20 };
/* Pages written one after the other lie apart; a prime, so that all have their turn. */
static const uint64_t kPageStride = 1000003;

static struct {
  long memory_mib, large_ranks, rewrite_percent, steps;
  const char *until, *park;
} options = {.large_ranks = 1 << 30};

static struct {
  uint64_t *words, pages;
  uint64_t written; /* pages, the first filling included */
} memory;

static int rank, ranks;

static void Fail(const char* text) {
  fprintf(stderr, "churn: rank %d: %s\n", rank, text);
  if (options.park != NULL) exit(3);
  XMPI_Abort(XMPI_COMM_WORLD, 3);
}

static void ParseOptions(int argc, char** argv) {
  for (int i = 1; i < argc; i += 2) {
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (strcmp(argv[i], "-memory") == 0)
      options.memory_mib = atol(value);
    else if (strcmp(argv[i], "-large") == 0)
      options.large_ranks = atol(value);
    else if (strcmp(argv[i], "-rewrite") == 0)
      options.rewrite_percent = atol(value);
    else if (strcmp(argv[i], "-steps") == 0)
      options.steps = atol(value);
    else if (strcmp(argv[i], "-until") == 0)
      options.until = value;
    else if (strcmp(argv[i], "-park") == 0)
      options.park = value;
    else
      Fail("what is that option? see the top of churn.c");
  }
  if (options.memory_mib < 1) Fail("-memory MIB must be at least 1");
}

/* Numbers without a pattern that a compressor or a deduplicator finds (splitmix64). */
static uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

static uint64_t Seed(uint64_t page, uint64_t times) {
  return Mix(Mix((uint64_t)rank << 40 ^ page) + times);
}

static void WritePage(uint64_t nth) {
  const uint64_t page = nth * kPageStride % memory.pages;
  uint64_t seed = Seed(page, nth / memory.pages);
  uint64_t* const words = memory.words + page * (kPageBytes / 8);
  for (int i = 0; i < kPageBytes / 8; ++i) words[i] = Mix(seed += 0x9e3779b97f4a7c15u);
}

static void WriteUpTo(uint64_t written) {
  while (memory.written < written) WritePage(memory.written++);
}

static void FillMemory(void) {
  const size_t mib = rank < options.large_ranks ? (size_t)options.memory_mib : 1;
  memory.pages = mib * kPagesPerMebibyte;
  memory.words = mmap(NULL, mib << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory.words == MAP_FAILED) Fail("out of memory");
  WriteUpTo(memory.pages);
}

/* The sum of all words, which no page may spoil unseen: each is compared with what it must be. */
static uint64_t CheckMemory(void) {
  uint64_t sum = 0;
  for (uint64_t nth = memory.written - memory.pages; nth < memory.written; ++nth) {
    const uint64_t page = nth * kPageStride % memory.pages;
    uint64_t seed = Seed(page, nth / memory.pages);
    const uint64_t* const words = memory.words + page * (kPageBytes / 8);
    for (int i = 0; i < kPageBytes / 8; ++i) {
      const uint64_t expected = Mix(seed += 0x9e3779b97f4a7c15u);
      if (words[i] != expected) Fail("a page of its memory is not what it wrote there");
      sum += expected;
    }
  }
  return sum;
}

static double Seconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int IsLast(long step) {
  int last = options.steps > 0 && step >= options.steps;
  if (rank == 0 && options.until != NULL && access(options.until, F_OK) == 0) last = 1;
  MPI_Allreduce(MPI_IN_PLACE, &last, 1, MPI_INT, MPI_MAX, XMPI_COMM_WORLD);
  return last;
}

/* Sleeps until the step's time has come. A job that was stopped or is too slow starts counting
 * anew. */
static void AwaitStep(double* next) {
  const double now = Seconds(CLOCK_MONOTONIC);
  if (now < *next) usleep((useconds_t)((*next - now) * 1e6));
  *next = (now < *next ? *next : now) + 1.0 / kStepsPerSecond;
}

static void Run(void) {
  const double began = Seconds(CLOCK_MONOTONIC);
  double next = began, line = 0;
  long step = 0;
  int last = 0;
  while (!last) {
    ++step;
    WriteUpTo(memory.pages + memory.pages * (uint64_t)options.rewrite_percent * (uint64_t)step /
                                 (100 * kStepsPerSecond));
    last = IsLast(step);
    int rebuilt = 0;
    XMPI_Quiesce(&rebuilt);
    if (rebuilt) {
      CheckMemory();
      MPI_Barrier(XMPI_COMM_WORLD); /* so that no line of a step comes before all have */
    }
    if (rank == ranks - 1 && Seconds(CLOCK_REALTIME) >= line) {
      line = Seconds(CLOCK_REALTIME) + 1.0 / kLinesPerSecond;
      printf("step %ld %.6f\n", step, Seconds(CLOCK_REALTIME));
      fflush(stdout);
    }
    AwaitStep(&next);
  }
  uint64_t sum = CheckMemory();
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_UINT64_T, MPI_SUM, XMPI_COMM_WORLD);
  if (rank == 0)
    printf("steps %ld seconds %.3f checksum %016" PRIx64 "\n", step,
           Seconds(CLOCK_MONOTONIC) - began, sum);
}

static void Say(const char* word, uint64_t number) {
  FILE* const file = fopen(options.park, "w");
  if (file == NULL || fprintf(file, "%s %" PRIu64 "\n", word, number) < 0 || fclose(file) != 0)
    Fail("cannot write what it has to say");
}

static void Park(void) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigprocmask(SIG_BLOCK, &ends, NULL);
  prctl(PR_SET_NAME, "parked");
  Say("parked", (uint64_t)getpid());
  int signal = 0;
  while (sigwait(&ends, &signal) != 0) continue;
  Say("checksum", CheckMemory());
}

int main(int argc, char** argv) {
  XMPI_Init(&argc, &argv);
  MPI_Comm_rank(XMPI_COMM_WORLD, &rank);
  MPI_Comm_size(XMPI_COMM_WORLD, &ranks);
  ParseOptions(argc, argv);
  FillMemory();
  if (options.park == NULL) {
    MPI_Barrier(XMPI_COMM_WORLD);
    Run();
  }
  XMPI_Finalize();
  if (options.park != NULL) Park();
  return 0;
}
