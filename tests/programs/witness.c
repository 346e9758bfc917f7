/* witness: a job that tells what it sees, for tests that watch it from outside while it moves. Each rank writes
 * numbered lines without a gap, so that a lost, doubled or disordered one shows, and stops the job when a clock
 * goes back or jumps, when a step is done twice, or when the world changes. The state is mixed among all ranks as
 * in ring, and its checksum comes last.
 *
 *   witness (-steps N | -until FILE) [-pause MICROSECONDS] [-lines PER_STEP] [-read PER_STEP]
 *           [-slow MILLISECONDS] [-listen RANK] [-open FILE RANK] [-trace EVERY]
 *           [-extra RANK] [-pending RANK] [-hold KIND RANK]...
 *
 *   -lines    "RANK out N" on stdout and "RANK err N" on stderr, N from 0
 *   -read     rank 0 reads so many numbered lines of standard input per step until its end, and checks them
 *   -slow     the last rank needs so long for each step
 *   -listen   that rank holds a listening TCP socket, which no dump can carry
 *   -open     that rank holds FILE open for writing
 *   -extra    that rank calls XMPI_Quiesce once more than the others
 *   -pending  that rank has a receive pending at each call
 *   -trace    "sum STEPS CHECKSUM" every so many steps: what any run of so many steps must end with
 *   -hold     KIND RANK, any number of times: that rank holds something of the kind (see kHolds)
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/io_uring.h>
#include <math.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <xmpi.h>

enum { kCount = 512, kMostSeconds = 60 };

static struct {
  long steps, lines, read, trace;
  int pause_us, slow_ms, listen_rank, open_rank, extra_rank, pending_rank;
  const char *until, *open_file;
} options = {.listen_rank = -1, .open_rank = -1, .extra_rank = -1, .pending_rank = -1};

static int rank, size;

static void Fail(const char *text) {
  fprintf(stderr, "witness: rank %d: %s\n", rank, text);
  XMPI_Abort(XMPI_COMM_WORLD, 3);
}

static int Listen(int flags) {
  const int fd = socket(AF_INET, SOCK_STREAM | flags, 0);
  struct sockaddr_in any = {.sin_family = AF_INET};
  return fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof any) != 0 || listen(fd, 1) != 0 ? -1 : fd;
}

static int Connect(int type, int listener) {
  const int fd = socket(AF_INET, type, 0);
  struct sockaddr_in to;
  socklen_t size = sizeof to;
  getsockname(listener, (struct sockaddr *)&to, &size);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(fd, (struct sockaddr *)&to, sizeof to) == 0 ? fd : -1;
}

static int HoldConnection(void) { return Connect(SOCK_STREAM, Listen(0)) >= 0; }

static int HoldPolledConnection(void) {
  const int fd = Connect(SOCK_STREAM, Listen(SOCK_NONBLOCK));
  return fd >= 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0;
}

static int HoldPolledUdp(void) {
  const int listener = Listen(0), fd = Connect(SOCK_DGRAM, listener);
  return fd >= 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0 && close(listener) == 0;
}

static int HoldUnconnected(void) { return socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0) >= 0; }

static int HoldIoUring(void) {
  struct io_uring_params params = {0};
  return syscall(SYS_io_uring_setup, 1, &params) >= 0;
}

static int HoldSysv(void) {
  const int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
  return id >= 0 && shmat(id, NULL, 0) != (void *)-1;
}

static int HoldDevice(void) { return open("/dev/fuse", O_RDWR) >= 0; }

static int HoldHugePage(void) {
  return mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0) != MAP_FAILED;
}

static int HoldMemory(void) {
  const size_t size = 64 << 20;
  char *const memory = malloc(size);
  return memory != NULL && ((char *)memset(memory, rank + 1, size))[size / 2] != 0;
}

static int HoldDaemon(void) {
  const pid_t child = fork();
  if (child != 0) return child > 0;
  if (fork() != 0) _exit(0);
  setsid();
  while (access(options.until, F_OK) != 0) usleep(100000);
  _exit(0);
}

static const struct { const char *kind; int (*hold)(void); } kHolds[] = {
  {"connection", HoldConnection}, {"polled-connection", HoldPolledConnection},
  {"polled-udp", HoldPolledUdp}, {"unconnected", HoldUnconnected}, {"io_uring", HoldIoUring},
  {"sysv", HoldSysv}, {"device", HoldDevice}, {"huge-page", HoldHugePage}, {"daemon", HoldDaemon},
  {"memory", HoldMemory},
};

static void HoldKind(const char *kind) {
  for (size_t i = 0; i < sizeof kHolds / sizeof *kHolds; ++i) {
    if (strcmp(kHolds[i].kind, kind) != 0) continue;
    if (!kHolds[i].hold()) Fail(kind);
    return;
  }
  Fail("no such kind to hold");
}

static void ParseOptions(int argc, char **argv) {
  for (int i = 1; i < argc; i += 2) {
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    if (strcmp(argv[i], "-steps") == 0) options.steps = atol(value);
    else if (strcmp(argv[i], "-until") == 0) options.until = value;
    else if (strcmp(argv[i], "-pause") == 0) options.pause_us = atoi(value);
    else if (strcmp(argv[i], "-lines") == 0) options.lines = atol(value);
    else if (strcmp(argv[i], "-read") == 0) options.read = atol(value);
    else if (strcmp(argv[i], "-slow") == 0) options.slow_ms = atoi(value);
    else if (strcmp(argv[i], "-extra") == 0) options.extra_rank = atoi(value);
    else if (strcmp(argv[i], "-pending") == 0) options.pending_rank = atoi(value);
    else if (strcmp(argv[i], "-trace") == 0) options.trace = atol(value);
    else if (strcmp(argv[i], "-listen") == 0) options.listen_rank = atoi(value);
    else if (strcmp(argv[i], "-hold") == 0 && i + 2 < argc) {
      if (atoi(argv[++i + 1]) == rank) HoldKind(value);
    } else if (strcmp(argv[i], "-open") == 0 && i + 2 < argc) {
      options.open_file = value;
      options.open_rank = atoi(argv[++i + 1]);
    } else Fail("what is that option? see the top of witness.c");
  }
}

static void Hold(void) {
  if (rank == options.listen_rank && Listen(0) < 0) Fail("no TCP socket");
  if (rank == options.open_rank && open(options.open_file, O_WRONLY | O_CREAT, 0600) < 0)
    Fail("no file to hold");
}

static double Monotonic(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void CheckClocks(void) {
  static double monotonic, wtime;
  const double now = Monotonic(), mpi = MPI_Wtime();
  if (monotonic != 0 && now < monotonic) Fail("CLOCK_MONOTONIC went back");
  if (monotonic != 0 && now > monotonic + kMostSeconds) Fail("CLOCK_MONOTONIC jumped");
  if (monotonic != 0 && (mpi < wtime || mpi > wtime + kMostSeconds)) Fail("MPI_Wtime jumped");
  monotonic = now;
  wtime = mpi;
}

static void CheckWorld(void) {
  int rank_now, size_now;
  MPI_Comm_rank(XMPI_COMM_WORLD, &rank_now);
  MPI_Comm_size(XMPI_COMM_WORLD, &size_now);
  if (rank_now != rank || size_now != size) Fail("the world has changed");
}

static void TellHost(long step) {
  static char last[256];
  char now[256];
  gethostname(now, sizeof now);
  if (strcmp(last, now) == 0) return;
  strcpy(last, now);
  printf("%d host %s from step %ld\n", rank, now, step);
  fflush(stdout);
}

static void WriteLines(void) {
  static long next;
  for (long i = 0; i < options.lines; ++i, ++next) {
    printf("%d out %ld\n", rank, next);
    fprintf(stderr, "%d err %ld\n", rank, next);
  }
  fflush(stdout);
}

static long ReadLines(void) {
  static long next;
  char line[64];
  for (long i = 0; rank == 0 && i < options.read && fgets(line, sizeof line, stdin) != NULL; ++i, ++next) {
    if (atol(line) != next) Fail("a line of standard input is missing, doubled or out of order");
  }
  return next;
}

static void Compute(long step, double *mine) {
  double left[kCount], sum = 0, total;
  MPI_Sendrecv(mine, kCount, MPI_DOUBLE, (rank + 1) % size, 1, left, kCount, MPI_DOUBLE,
               (rank + size - 1) % size, 1, XMPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (int i = 0; i < kCount; ++i) sum += mine[i] = sin(mine[i] + 0.7 * left[i]);
  MPI_Allreduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, XMPI_COMM_WORLD);
  mine[step % kCount] += 1e-3 * total;
}

static int Over(long step) {
  int over = options.until == NULL ? step + 1 >= options.steps : access(options.until, F_OK) == 0;
  MPI_Bcast(&over, 1, MPI_INT, 0, XMPI_COMM_WORLD);
  return over;
}

static uint64_t Checksum(const double *mine) {
  uint64_t sum = 0xcbf29ce484222325u + (uint64_t)rank, all;
  for (size_t i = 0; i < kCount * sizeof *mine; ++i)
    sum = (sum ^ ((const unsigned char *)mine)[i]) * 0x100000001b3u;
  MPI_Allreduce(&sum, &all, 1, MPI_UINT64_T, MPI_BXOR, XMPI_COMM_WORLD);
  return all;
}

/* The safe point, and what breaks its contract. */
static void StopHere(long step, int *rebuilt) {
  static char byte;
  MPI_Request pending = MPI_REQUEST_NULL;
  if (rank == options.extra_rank && step == 0) XMPI_Quiesce(NULL);
  if (rank == options.pending_rank)
    MPI_Irecv(&byte, 1, MPI_CHAR, rank, 2, XMPI_COMM_WORLD, &pending);
  XMPI_Quiesce(rebuilt);
  if (pending == MPI_REQUEST_NULL) return;
  MPI_Send(&byte, 1, MPI_CHAR, rank, 2, XMPI_COMM_WORLD);
  MPI_Wait(&pending, MPI_STATUS_IGNORE);
}

static void Trace(long steps, const double *mine) {
  const uint64_t checksum = Checksum(mine);
  if (rank == 0) printf("sum %ld 0x%016" PRIx64 "\n", steps, checksum);
}

int main(int argc, char **argv) {
  double mine[kCount];
  long step = 0, moves = 0, lines_read = 0;
  if (XMPI_Init(&argc, &argv) != MPI_SUCCESS) return 2;
  MPI_Comm_rank(XMPI_COMM_WORLD, &rank);
  MPI_Comm_size(XMPI_COMM_WORLD, &size);
  ParseOptions(argc, argv);
  Hold();
  for (int i = 0; i < kCount; ++i) mine[i] = sin(rank + 0.001 * i);
  for (int over = 0; !over; ++step) {
    int rebuilt;
    TellHost(step);
    CheckClocks();
    CheckWorld();
    Compute(step, mine);
    WriteLines();
    lines_read = ReadLines();
    if (rank == size - 1) usleep((useconds_t)options.slow_ms * 1000);
    usleep((useconds_t)options.pause_us);
    over = Over(step);
    if (options.trace > 0 && (step + 1) % options.trace == 0) Trace(step + 1, mine);
    StopHere(step, &rebuilt);
    moves += rebuilt;
  }
  const uint64_t checksum = Checksum(mine);
  if (rank == 0)
    printf("steps %ld rebuilt %ld read %ld checksum 0x%016" PRIx64 "\n", step, moves, lines_read, checksum);
  XMPI_Finalize();
  return 0;
}
