/* holder: each rank holds what programs hold, looks after each step whether it is still what it was, and says after
 * each move "RANK holds NAME after move N". What is wrong ends the job with a line that names rank and thing.
 *
 *   holder (-steps N | -until FILE) [-pause MICROSECONDS] [-in CALL] [-before FILE] [-after FILE] [-uneven]
 *          [-hold NAME[=ARGUMENT]]...
 *
 *   -in      rank 0 spends the pause in: nanosleep, poll, read, select, compute, wait
 *   -before  wait for FILE before XMPI_Init      -after  wait for FILE after XMPI_Finalize
 *   -uneven  without talk among ranks between the safe points, each at its own speed
 *
 * What there is to hold: see the table at the end. %d in a file's name is the rank.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xmpi.h>

enum { kMostHeld = 32, kMebibyte = 1 << 20 };

static struct {
  long steps;
  int pause_us, uneven;
  const char *until, *in, *before, *after;
} options;

static int rank = -1, size, moves;
static long step;
static FILE *tell; /* stdout, or what is left of it */

__attribute__((format(printf, 1, 2))) static void Fail(const char *format, ...) {
  char text[512];
  va_list rest;
  va_start(rest, format);
  vsnprintf(text, sizeof text, format, rest);
  va_end(rest);
  fprintf(stderr, "holder: rank %d, move %d: %s (%s)\n", rank, moves, text, strerror(errno));
  if (rank < 0) exit(3);
  XMPI_Abort(XMPI_COMM_WORLD, 3);
}
#define MUST(condition) \
  do {                  \
    if (!(condition)) Fail("line %d: %s", __LINE__, #condition); \
  } while (0)

static double Now(clockid_t clock) {
  struct timespec now;
  MUST(clock_gettime(clock, &now) == 0);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static const char *Named(const char *argument) {
  char text[4096];
  const char *at = strstr(argument, "%d");
  if (at == NULL) return argument;
  snprintf(text, sizeof text, "%.*s%d%s", (int)(at - argument), argument, rank, at + 2);
  return strdup(text);
}

static uint64_t Word(uint64_t seed, size_t i) {
  const uint64_t mixed = (seed + i) * 0x9e3779b97f4a7c15u;
  return mixed ^ (mixed >> 29);
}
static void Fill(void *memory, size_t bytes, uint64_t seed) {
  uint64_t *words = memory;
  for (size_t i = 0; i < bytes / sizeof *words; ++i) words[i] = Word(seed, i);
}
static int IsFilled(const void *memory, size_t bytes, uint64_t seed) {
  const uint64_t *words = memory;
  for (size_t i = 0; i < bytes / sizeof *words; ++i)
    if (words[i] != Word(seed, i)) return 0;
  return 1;
}

/* ---- Identity */

static struct { pid_t pid, parent, group, session, thread; } ids;
static void BeginIds(const char *argument) {
  (void)argument;
  ids.pid = getpid(), ids.parent = getppid(), ids.group = getpgrp(), ids.session = getsid(0), ids.thread = gettid();
}
static void CheckIds(void) {
  MUST(ids.pid == getpid() && ids.thread == gettid() && ids.parent == getppid());
  MUST(ids.group == getpgrp() && ids.session == getsid(0));
}

static void CheckClocks(void) {
  static double before[4];
  const double now[4] = {Now(CLOCK_MONOTONIC), Now(CLOCK_BOOTTIME), Now(CLOCK_MONOTONIC_RAW), MPI_Wtime()};
  for (int i = 0; i < 4; ++i) {
    if (before[i] != 0 && (now[i] < before[i] || now[i] > before[i] + 60)) Fail("clock %d went from %f to %f", i, before[i], now[i]);
    before[i] = now[i];
  }
}

/* ---- Sleeps and timers: one thread per kind; none may end early by its own clock, or hang. */

static const char *const kSleeps[] = {"nanosleep", "absolute", "poll", "condition", "timerfd"};
enum { kSleepKinds = sizeof kSleeps / sizeof *kSleeps };
static struct { volatile double last; volatile int ended; } sleepers[kSleepKinds];

static void SleepOnce(int kind, double seconds) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  const double end = Now(CLOCK_MONOTONIC) + seconds;
  struct timespec span = {0, (long)(seconds * 1e9)}, at = {(time_t)end, (long)((end - (double)(time_t)end) * 1e9)};
  pthread_condattr_t attributes;
  pthread_cond_t never;
  switch (kind) {
    case 0: while (nanosleep(&span, &span) != 0) MUST(errno == EINTR); break;
    case 1: while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0) { } break;
    case 2: /* CRIU lets it return with EINTR, where a stop and a continue alone would not */
      for (double left; (left = end - Now(CLOCK_MONOTONIC)) > 0;)
        MUST(poll(NULL, 0, (int)(left * 1000) + 1) == 0 || errno == EINTR);
      break;
    case 3:
      pthread_condattr_init(&attributes);
      pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
      pthread_cond_init(&never, &attributes);
      pthread_mutex_lock(&mutex);
      while (pthread_cond_timedwait(&never, &mutex, &at) != ETIMEDOUT) { }
      pthread_mutex_unlock(&mutex);
      break;
    default: {
      uint64_t count;
      const int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
      const struct itimerspec once = {.it_value = span};
      MUST(fd >= 0 && timerfd_settime(fd, 0, &once, NULL) == 0);
      while (read(fd, &count, sizeof count) != sizeof count) MUST(errno == EINTR);
      close(fd);
    }
  }
}
static void *Sleeper(void *argument) {
  const int kind = (int)(intptr_t)argument;
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  for (;;) {
    const double begin = Now(CLOCK_MONOTONIC);
    SleepOnce(kind, 0.4);
    const double took = Now(CLOCK_MONOTONIC) - begin;
    if (took < 0.399 || took > 60) Fail("a sleep of 0.4 s by %s took %f s", kSleeps[kind], took);
    sleepers[kind].last = begin + took;
    ++sleepers[kind].ended;
  }
  return NULL;
}
static void BeginSleeps(const char *argument) {
  pthread_t thread;
  (void)argument;
  for (intptr_t kind = 0; kind < kSleepKinds; ++kind) {
    sleepers[kind].last = Now(CLOCK_MONOTONIC);
    MUST(pthread_create(&thread, NULL, Sleeper, (void *)kind) == 0);
  }
}
static void CheckSleeps(void) {
  for (int kind = 0; kind < kSleepKinds; ++kind)
    if (Now(CLOCK_MONOTONIC) - sleepers[kind].last > 60) Fail("a sleep by %s does not end", kSleeps[kind]);
}
/* At the end each kind has come back from a sleep that began after the last move. */
static void EndSleeps(void) {
  for (int kind = 0; kind < kSleepKinds; ++kind)
    for (const int before = sleepers[kind].ended; sleepers[kind].ended < before + 2; usleep(10000)) CheckSleeps();
}

static volatile sig_atomic_t real_ticks, virtual_ticks, posix_ticks;
static void OnTick(int signal) {
  if (signal == SIGALRM) ++real_ticks;
  else if (signal == SIGVTALRM) ++virtual_ticks;
  else ++posix_ticks;
}
static int timer_fd;
static timer_t posix_timer;
static void BeginTimers(const char *argument) {
  const struct itimerval period = {{0, 50000}, {0, 50000}};
  const struct itimerspec fast = {{0, 50000000}, {0, 50000000}};
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 3};
  struct sigaction action = {.sa_handler = OnTick, .sa_flags = SA_RESTART};
  (void)argument;
  sigaction(SIGALRM, &action, NULL), sigaction(SIGVTALRM, &action, NULL), sigaction(SIGRTMIN + 3, &action, NULL);
  MUST(setitimer(ITIMER_REAL, &period, NULL) == 0 && setitimer(ITIMER_VIRTUAL, &period, NULL) == 0);
  MUST(timer_create(CLOCK_MONOTONIC, &event, &posix_timer) == 0 && timer_settime(posix_timer, 0, &fast, NULL) == 0);
  timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  MUST(timer_fd >= 0 && timerfd_settime(timer_fd, 0, &fast, NULL) == 0);
}
/* Each goes on ticking, and at its old pace. */
static void CheckTimers(void) {
  const struct itimerval want = {{0, 50000}, {0, 0}};
  struct itimerval now;
  struct itimerspec posix;
  MUST(getitimer(ITIMER_REAL, &now) == 0 && now.it_interval.tv_usec == want.it_interval.tv_usec);
  MUST(getitimer(ITIMER_VIRTUAL, &now) == 0 && now.it_interval.tv_usec >= 50000 && now.it_interval.tv_usec <= 54000);
  MUST(timer_gettime(posix_timer, &posix) == 0 && posix.it_interval.tv_nsec == 50000000 && posix.it_value.tv_sec == 0);
  MUST(timerfd_gettime(timer_fd, &posix) == 0);
  /* Nothing is left in the moment in which it expires; of one that has stopped, for ever. */
  for (int tries = 0; tries < 1000 && posix.it_value.tv_sec == 0 && posix.it_value.tv_nsec == 0; ++tries) {
    usleep(1000);
    MUST(timerfd_gettime(timer_fd, &posix) == 0);
  }
  if (posix.it_interval.tv_nsec != 50000000 || posix.it_value.tv_sec != 0 || posix.it_value.tv_nsec == 0)
    Fail("the timerfd has %ld.%09ld left of %ld ns", (long)posix.it_value.tv_sec, posix.it_value.tv_nsec, posix.it_interval.tv_nsec);
}
static void EndTimers(void) {
  const int real = real_ticks, posix = posix_ticks, cpu = virtual_ticks;
  const double begin = Now(CLOCK_MONOTONIC);
  uint64_t expired;
  while (read(timer_fd, &expired, sizeof expired) > 0) { }
  while (real_ticks < real + 3 || posix_ticks < posix + 3 || virtual_ticks < cpu + 3)
    if (Now(CLOCK_MONOTONIC) > begin + 60) Fail("timers stand: %d %d %d", real_ticks - real, posix_ticks - posix, virtual_ticks - cpu);
  MUST(read(timer_fd, &expired, sizeof expired) == sizeof expired);
}

/* ---- Threads and processes */

static volatile long thread_sum[3];
static void *Worker(void *argument) {
  const int number = (int)(intptr_t)argument;
  prctl(PR_SET_NAME, number == 0 ? "holder-a" : number == 1 ? "holder-b" : "holder-c");
  for (;; usleep(1000)) ++thread_sum[number];
  return NULL;
}
static void BeginThreads(const char *argument) {
  pthread_t thread;
  (void)argument;
  for (intptr_t i = 0; i < 3; ++i) MUST(pthread_create(&thread, NULL, Worker, (void *)i) == 0);
}
static long ParallelSum(void) {
  long sum = 0;
#pragma omp parallel for num_threads(4) reduction(+ : sum)
  for (int i = 0; i < 1000; ++i) sum += i;
  return sum;
}
static void CheckThreads(void) {
  static __thread int mine = 0;
  MUST(mine++ == step && ParallelSum() == 499500);
}
static void EndThreads(void) {
  for (int i = 0; i < 3; ++i)
    for (const long before = thread_sum[i]; thread_sum[i] == before;) usleep(1000);
}

/* A child that answers each number with the next one. One question is always under way: it lies in a pipe at the move. */
struct Helper { pid_t pid; int to, from; long asked; };
static void Serve(int from, int to) {
  long number;
  while (read(from, &number, sizeof number) == sizeof number) {
    if (number < 0) _exit(7);
    ++number;
    if (write(to, &number, sizeof number) != sizeof number) _exit(8);
  }
  _exit(9);
}
static int careless;
static void BeginHelper(struct Helper *helper, int execute) {
  int there[2], back[2];
  MUST(pipe2(there, O_CLOEXEC) == 0 && pipe2(back, O_CLOEXEC) == 0);
  helper->pid = fork();
  if (helper->pid == 0) {
    setpgid(0, 0);
    if (!execute) Serve(there[0], back[1]);
    dup2(there[0], 0), dup2(back[1], 1);
    /* As whoever starts programs with care does: MPI's connections are no business of theirs. */
    if (!careless) close_range(3, ~0u, 0);
    execl("/proc/self/exe", "holder-helper", "-serve", NULL);
    _exit(127);
  }
  helper->to = there[1], helper->from = back[0], helper->asked = step;
  close(there[0]), close(back[1]);
  MUST(write(helper->to, &step, sizeof step) == sizeof step);
}
static void CheckHelper(struct Helper *helper) {
  long answer;
  MUST(read(helper->from, &answer, sizeof answer) == sizeof answer && answer == helper->asked + 1);
  helper->asked = step;
  MUST(write(helper->to, &step, sizeof step) == sizeof step);
}
static void EndHelper(struct Helper *helper) {
  const long end = -1;
  int status;
  MUST(write(helper->to, &end, sizeof end) == sizeof end);
  MUST(waitpid(helper->pid, &status, 0) == helper->pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}
static struct Helper executed, forked;
static void BeginChild(const char *argument) {
  careless = strcmp(argument, "careless") == 0;
  BeginHelper(&executed, 1);
}
static void CheckChild(void) { CheckHelper(&executed); }
static void EndChild(void) { EndHelper(&executed); }
/* Before XMPI_Init: what is forked later has MPI's connections too, which nobody can dump. */
static void BeginForked(const char *argument) { (void)argument, BeginHelper(&forked, 0); }
static void CheckForked(void) { CheckHelper(&forked); }
static void EndForked(void) { EndHelper(&forked); }

static pid_t zombie;
static void BeginZombie(const char *argument) {
  siginfo_t info;
  (void)argument;
  zombie = fork();
  if (zombie == 0) _exit(5);
  MUST(waitid(P_PID, (id_t)zombie, &info, WEXITED | WNOWAIT) == 0);
}
static void EndZombie(void) {
  int status;
  MUST(waitpid(zombie, &status, 0) == zombie && WEXITSTATUS(status) == 5);
}

/* ---- Memory */

static char *locked, *shared, *advised;
static void BeginMemory(const char *argument) {
  (void)argument;
  locked = mmap(NULL, kMebibyte, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  shared = mmap(NULL, kMebibyte, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  advised = mmap(NULL, 8 * kMebibyte, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  MUST(locked != MAP_FAILED && shared != MAP_FAILED && advised != MAP_FAILED);
  madvise(advised, 8 * kMebibyte, MADV_HUGEPAGE);
  Fill(locked, kMebibyte, (uint64_t)rank + 1), Fill(shared, kMebibyte, (uint64_t)rank + 2);
  Fill(advised, 8 * kMebibyte, (uint64_t)rank + 3);
  MUST(mlock(locked, kMebibyte) == 0);
  MUST(mprotect(shared, 4096, PROT_READ) == 0);
}
static long LockedKilobytes(void) {
  char line[256];
  long kilobytes = -1;
  FILE *status = fopen("/proc/self/status", "r");
  while (status != NULL && fgets(line, sizeof line, status) != NULL) sscanf(line, "VmLck: %ld", &kilobytes);
  if (status != NULL) fclose(status);
  return kilobytes;
}
static void CheckMemory(void) {
  MUST(IsFilled(locked, kMebibyte, (uint64_t)rank + 1) && IsFilled(shared, kMebibyte, (uint64_t)rank + 2));
  MUST(IsFilled(advised, 8 * kMebibyte, (uint64_t)rank + 3) && LockedKilobytes() >= 1024);
}

/* ---- Signals */

static void BeginPending(const char *argument) {
  sigset_t set;
  (void)argument;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1), sigaddset(&set, SIGRTMIN + 5);
  MUST(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
  raise(SIGUSR1);
  for (int i = 1; i <= 3; ++i) MUST(pthread_sigqueue(pthread_self(), SIGRTMIN + 5, (union sigval){.sival_int = 40 + i}) == 0);
  signal(SIGPIPE, SIG_IGN);
}
static void CheckPending(void) {
  struct sigaction action;
  sigset_t set;
  MUST(sigpending(&set) == 0 && sigismember(&set, SIGUSR1) && sigismember(&set, SIGRTMIN + 5));
  MUST(sigaction(SIGPIPE, NULL, &action) == 0 && action.sa_handler == SIG_IGN);
}
static void EndPending(void) {
  sigset_t set;
  siginfo_t info;
  sigemptyset(&set);
  sigaddset(&set, SIGRTMIN + 5);
  for (int i = 1; i <= 3; ++i) MUST(sigwaitinfo(&set, &info) == SIGRTMIN + 5 && info.si_value.sival_int == 40 + i);
}

/* ---- Descriptors without a name */

static struct { int event, signal, epoll, memory, pair[2], pipe[2]; } nameless;
static void BeginNameless(const char *argument) {
  sigset_t set;
  struct epoll_event in = {.events = EPOLLIN, .data.u64 = 77};
  (void)argument;
  sigemptyset(&set);
  sigaddset(&set, SIGURG);
  sigprocmask(SIG_BLOCK, &set, NULL);
  nameless.event = eventfd(5, 0), nameless.signal = signalfd(-1, &set, 0), nameless.epoll = epoll_create1(0);
  nameless.memory = memfd_create("holder", MFD_CLOEXEC);
  MUST(nameless.event >= 0 && nameless.signal >= 0 && nameless.epoll >= 0 && nameless.memory >= 0);
  MUST(write(nameless.memory, "memory", 6) == 6);
  MUST(epoll_ctl(nameless.epoll, EPOLL_CTL_ADD, nameless.event, &in) == 0);
  MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, nameless.pair) == 0 && send(nameless.pair[0], "packet", 6, 0) == 6);
  MUST(pipe2(nameless.pipe, O_NONBLOCK) == 0 && write(nameless.pipe[1], "unread", 6) == 6);
}
static void CheckNameless(void) {
  char text[8] = {0};
  struct epoll_event got;
  uint64_t count = 0;
  MUST(epoll_wait(nameless.epoll, &got, 1, 0) == 1 && got.data.u64 == 77);
  MUST(read(nameless.event, &count, sizeof count) == sizeof count && count == 5);
  MUST(write(nameless.event, &count, sizeof count) == sizeof count);
  MUST(pread(nameless.memory, text, 6, 0) == 6 && strcmp(text, "memory") == 0);
  MUST(recv(nameless.pair[1], text, 6, MSG_DONTWAIT) == 6 && strcmp(text, "packet") == 0);
  MUST(send(nameless.pair[0], "packet", 6, 0) == 6);
  MUST(read(nameless.pipe[0], text, 6) == 6 && strcmp(text, "unread") == 0 && write(nameless.pipe[1], text, 6) == 6);
}
static void EndNameless(void) {
  struct signalfd_siginfo info;
  raise(SIGURG);
  MUST(read(nameless.signal, &info, sizeof info) == sizeof info && info.ssi_signo == SIGURG);
}

static int pty_master, pty_slave;
static void BeginPty(const char *argument) {
  (void)argument;
  pty_master = posix_openpt(O_RDWR | O_NOCTTY);
  MUST(pty_master >= 0 && grantpt(pty_master) == 0 && unlockpt(pty_master) == 0);
  pty_slave = open(ptsname(pty_master), O_RDWR | O_NOCTTY);
  MUST(pty_slave >= 0 && isatty(pty_slave));
}
static void CheckPty(void) {
  char text[16];
  MUST(write(pty_master, "line\n", 5) == 5 && read(pty_slave, text, sizeof text) == 5 && isatty(pty_slave));
  /* The echo. Left unread it grows, and CRIU 4.1.1 hangs in the restore of a terminal that is full. */
  MUST(read(pty_master, text, sizeof text) == 6 && memcmp(text, "line\r\n", 6) == 0);
}

/* ---- Files */

/* written: numbered lines of our own, checked by whoever reads the file afterwards. */
static int written = -1;
static void BeginWritten(const char *argument) {
  MUST((written = open(Named(argument), O_RDWR | O_CREAT | O_TRUNC, 0640)) >= 0);
}
static void WriteLine(int fd) {
  char line[64];
  const int length = snprintf(line, sizeof line, "%d line %ld\n", rank, step);
  MUST(write(fd, line, (size_t)length) == length);
}
static void CheckWritten(void) { WriteLine(written); }
static void EndWritten(void) {
  FILE *all = fdopen(written, "r+");
  long number, next = 0;
  int who;
  rewind(all);
  while (fscanf(all, "%d line %ld\n", &who, &number) == 2) MUST(who == rank && number == next++);
  MUST(next == step && fclose(all) == 0);
}

/* append: the same at the end of a log that others write too; append-read: one that is open for reading as well. */
static int appended = -1, appended_read = -1;
static void BeginAppend(const char *argument) {
  MUST((appended = open(Named(argument), O_WRONLY | O_CREAT | O_APPEND, 0644)) >= 0);
}
static void CheckAppend(void) { WriteLine(appended); }
static void BeginAppendRead(const char *argument) {
  MUST((appended_read = open(Named(argument), O_RDWR | O_CREAT | O_APPEND, 0644)) >= 0);
}
static void CheckAppendRead(void) { WriteLine(appended_read); }

/* read: lines 0, 1, 2, ... of a file that is there already, a few per step. */
static FILE *reading;
static long next_read;
static void BeginRead(const char *argument) {
  MUST((reading = fopen(Named(argument), "r")) != NULL);
  setvbuf(reading, NULL, _IONBF, 0);
}
static void CheckRead(void) {
  long number;
  for (int i = 0; i < 3; ++i, ++next_read) {
    if (fscanf(reading, "%ld\n", &number) != 1) Fail("the file ends at line %ld", next_read);
    if (number != next_read) Fail("line %ld says %ld", next_read, number);
  }
}

/* deleted=FILE:MIB */
static int deleted = -1;
static size_t deleted_bytes;
static void BeginDeleted(const char *argument) {
  char name[4096];
  const char *colon = strchr(Named(argument), ':');
  deleted_bytes = (size_t)atol(colon + 1) * kMebibyte;
  snprintf(name, sizeof name, "%.*s", (int)(colon - Named(argument)), Named(argument));
  MUST((deleted = open(name, O_RDWR | O_CREAT | O_EXCL, 0600)) >= 0 && unlink(name) == 0);
  char *block = malloc(kMebibyte);
  for (size_t i = 0; i < deleted_bytes; i += kMebibyte) {
    Fill(block, kMebibyte, i + (uint64_t)rank);
    MUST(write(deleted, block, kMebibyte) == kMebibyte);
  }
  free(block);
}
static void CheckDeleted(void) {
  static int checked = -1;
  struct stat info;
  if (checked == moves) return;
  checked = moves;
  char *block = malloc(kMebibyte);
  for (size_t i = 0; i < deleted_bytes; i += kMebibyte)
    MUST(pread(deleted, block, kMebibyte, (off_t)i) == kMebibyte && IsFilled(block, kMebibyte, i + (uint64_t)rank));
  free(block);
  MUST(fstat(deleted, &info) == 0 && info.st_nlink == 0 && lseek(deleted, 0, SEEK_CUR) == (off_t)deleted_bytes);
}

/* mapped: a file's pages, shared and with the descriptor closed. */
static uint64_t *mapped;
static void BeginMapped(const char *argument) {
  const int fd = open(Named(argument), O_RDWR | O_CREAT | O_TRUNC, 0600);
  MUST(fd >= 0 && ftruncate(fd, kMebibyte) == 0);
  mapped = mmap(NULL, kMebibyte, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  MUST(mapped != MAP_FAILED && close(fd) == 0);
  Fill(mapped + 512, kMebibyte - 4096, 9);
}
static void CheckMapped(void) {
  static uint64_t before;
  MUST(mapped[0] == before && IsFilled(mapped + 512, kMebibyte - 4096, 9));
  mapped[0] = ++before;
}

/* locked: an flock and a record lock on a file; a stranger must find both taken. */
static int lock_file = -1;
static const char *lock_name;
static void BeginLock(const char *argument) {
  struct flock part = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5};
  lock_name = Named(argument);
  MUST((lock_file = open(lock_name, O_RDWR | O_CREAT, 0600)) >= 0);
  MUST(flock(lock_file, LOCK_EX | LOCK_NB) == 0 && fcntl(lock_file, F_SETLK, &part) == 0);
}
static void CheckLock(void) {
  const int other = open(lock_name, O_RDWR);
  MUST(other >= 0 && flock(other, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK);
  close(lock_file), close(other); /* closing drops the record lock: both are taken anew */
  BeginLock(lock_name);
}

/* folder: a working directory, and a descriptor of it. */
static char folder[4096];
static int folder_fd = -1;
static void BeginFolder(const char *argument) {
  MUST(chdir(Named(argument)) == 0 && getcwd(folder, sizeof folder) != NULL);
  MUST((folder_fd = open(".", O_RDONLY | O_DIRECTORY)) >= 0);
}
static void CheckFolder(void) {
  char now[4096];
  struct stat path, fd;
  MUST(getcwd(now, sizeof now) != NULL && strcmp(now, folder) == 0);
  MUST(stat(folder, &path) == 0 && fstat(folder_fd, &fd) == 0 && path.st_ino == fd.st_ino);
}

/* Streams: the rank's own are what the launcher gave, unless it has put something in their place. */
static void BeginStream(const char *argument) {
  const int fd = argument[0] - '0';
  const char *what = argument + 2;
  if (rank == 0) return; /* whose stdout the test waits for */
  if (fd == 1) tell = stderr;
  if (strcmp(what, "closed") == 0) {
    MUST(close(fd) == 0);
  } else if (strcmp(what, "pty") == 0) {
    BeginPty(NULL);
    MUST(dup2(pty_slave, fd) == fd);
  } else {
    const int file = open(Named(what), fd == 0 ? O_RDONLY : O_WRONLY | O_CREAT, 0600);
    MUST(file >= 0 && dup2(file, fd) == fd && close(file) == 0);
  }
}

/* The same deleted file in two ranks of a slot: what they write is for each other. */
static uint64_t *common;
static void BeginCommon(const char *argument) {
  int fd;
  if (rank == 0) MUST((fd = shm_open(argument, O_RDWR | O_CREAT | O_EXCL, 0600)) >= 0 && ftruncate(fd, 4096) == 0);
  MPI_Barrier(XMPI_COMM_WORLD);
  if (rank < 2) {
    MUST((fd = shm_open(argument, O_RDWR, 0)) >= 0);
    common = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MUST(common != MAP_FAILED && close(fd) == 0);
  }
}
static void BeginCommonDeleted(const char *argument) {
  BeginCommon(argument);
  MPI_Barrier(XMPI_COMM_WORLD);
  if (rank == 0) MUST(shm_unlink(argument) == 0);
}
static void CheckCommon(void) {
  if (rank == 0) common[0] = (uint64_t)step + 1;
  MPI_Barrier(XMPI_COMM_WORLD);
  if (rank == 1) MUST(common[0] == (uint64_t)step + 1);
  MPI_Barrier(XMPI_COMM_WORLD);
}

static const struct Holding {
  const char *name;
  void (*begin)(const char *argument);
  void (*check)(void);
  void (*end)(void);
  int early; /* begins before XMPI_Init */
} kHoldings[] = {
    {"ids", BeginIds, CheckIds, NULL, 0},
    {"sleeps", BeginSleeps, CheckSleeps, EndSleeps, 0},
    {"timers", BeginTimers, CheckTimers, EndTimers, 0},
    {"threads", BeginThreads, CheckThreads, EndThreads, 0},
    {"child", BeginChild, CheckChild, EndChild, 0},
    {"forked", BeginForked, CheckForked, EndForked, 1},
    {"zombie", BeginZombie, NULL, EndZombie, 0},
    {"memory", BeginMemory, CheckMemory, NULL, 0},
    {"pending", BeginPending, CheckPending, EndPending, 0},
    {"nameless", BeginNameless, CheckNameless, EndNameless, 0},
    {"pty", BeginPty, CheckPty, NULL, 0},
    {"written", BeginWritten, CheckWritten, EndWritten, 0},
    {"append", BeginAppend, CheckAppend, NULL, 0},
    {"append-read", BeginAppendRead, CheckAppendRead, NULL, 0},
    {"read", BeginRead, CheckRead, NULL, 0},
    {"deleted", BeginDeleted, CheckDeleted, NULL, 0},
    {"mapped", BeginMapped, CheckMapped, NULL, 0},
    {"lock", BeginLock, CheckLock, NULL, 0},
    {"folder", BeginFolder, CheckFolder, NULL, 0},
    {"stream", BeginStream, NULL, NULL, 0},
    {"common", BeginCommon, CheckCommon, NULL, 0},
    {"common-deleted", BeginCommonDeleted, CheckCommon, NULL, 0},
};

static struct { const struct Holding *holding; const char *argument; } held[kMostHeld];
static int held_count;

static void Hold(const char *text) {
  const char *equals = strchr(text, '=');
  const size_t length = equals != NULL ? (size_t)(equals - text) : strlen(text);
  for (size_t i = 0; i < sizeof kHoldings / sizeof *kHoldings; ++i) {
    if (strlen(kHoldings[i].name) != length || strncmp(kHoldings[i].name, text, length) != 0) continue;
    if (held_count == kMostHeld) Fail("that is too much to hold");
    held[held_count].holding = &kHoldings[i];
    held[held_count++].argument = equals != NULL ? equals + 1 : "";
    return;
  }
  Fail("nothing to hold is called %s", text);
}

/* ---- The job */

static void ParseOptions(int argc, char **argv) {
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "-uneven") == 0) {
      options.uneven = 1;
      continue;
    }
    if (i + 1 == argc) Fail("%s needs a value", argv[i]);
    const char *value = argv[++i];
    const char *name = argv[i - 1];
    if (strcmp(name, "-steps") == 0) options.steps = atol(value);
    else if (strcmp(name, "-until") == 0) options.until = value;
    else if (strcmp(name, "-pause") == 0) options.pause_us = atoi(value);
    else if (strcmp(name, "-in") == 0) options.in = value;
    else if (strcmp(name, "-before") == 0) options.before = value;
    else if (strcmp(name, "-after") == 0) options.after = value;
    else if (strcmp(name, "-hold") == 0) Hold(value);
    else Fail("what is %s? see the top of holder.c", name);
  }
}

static void WaitFor(const char *file) {
  while (file != NULL && access(file, F_OK) != 0) usleep(5000);
}

/* The pause of rank 0, in a call that a notice interrupts; what is left of it is waited out. */
static void PauseIn(const char *in, int microseconds) {
  static int pipe_ends[2] = {-1, -1};
  const double end = Now(CLOCK_MONOTONIC) + 1e-6 * microseconds;
  if (pipe_ends[0] < 0) MUST(pipe(pipe_ends) == 0);
  if (strcmp(in, "read") == 0) { /* the helper answers when the time is over */
    const pid_t child = fork();
    char byte;
    if (child == 0) {
      usleep((useconds_t)microseconds);
      _exit(write(pipe_ends[1], "x", 1) == 1 ? 0 : 1);
    }
    MUST(read(pipe_ends[0], &byte, 1) == 1); /* restarted by the kernel: the handler has SA_RESTART */
    while (waitpid(child, NULL, 0) != child) MUST(errno == EINTR);
    return;
  }
  for (double left; (left = end - Now(CLOCK_MONOTONIC)) > 0;) {
    struct timespec span = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
    struct timeval select_span = {span.tv_sec, span.tv_nsec / 1000};
    struct pollfd wait = {.fd = pipe_ends[0], .events = POLLIN};
    if (strcmp(in, "nanosleep") == 0) MUST(nanosleep(&span, NULL) == 0 || errno == EINTR);
    else if (strcmp(in, "poll") == 0) MUST(poll(&wait, 1, (int)(left * 1000) + 1) == 0 || errno == EINTR);
    else if (strcmp(in, "select") == 0) MUST(select(0, NULL, NULL, NULL, &select_span) == 0 || errno == EINTR);
    else if (strcmp(in, "wait") == 0) {
      const pid_t child = fork();
      if (child == 0) _exit(usleep((useconds_t)(left * 1e6)));
      MUST(waitpid(child, NULL, 0) == child);
    } else if (strcmp(in, "compute") != 0) Fail("nobody can pause in %s", in);
  }
}

static int Over(void) {
  int over = options.until == NULL ? step + 1 >= options.steps : access(options.until, F_OK) == 0;
  if (options.uneven && step % 64 != 63) return 0;
  MPI_Bcast(&over, 1, MPI_INT, 0, XMPI_COMM_WORLD);
  return over;
}

static void CheckAll(int rebuilt) {
  CheckClocks();
  for (int i = 0; i < held_count; ++i) {
    if (held[i].holding->check != NULL) held[i].holding->check();
    if (!rebuilt) continue;
    char host[256];
    gethostname(host, sizeof host);
    fprintf(tell, "%d holds %s after move %d on %s\n", rank, held[i].holding->name, moves, host);
  }
  if (rebuilt) fflush(tell);
}

static void Step(int rebuilt) {
  int rank_now, size_now, sum;
  MPI_Comm_rank(XMPI_COMM_WORLD, &rank_now);
  MPI_Comm_size(XMPI_COMM_WORLD, &size_now);
  MUST(rank_now == rank && size_now == size);
  CheckAll(rebuilt);
  if (!options.uneven) {
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, XMPI_COMM_WORLD);
    MUST(sum == size * (size - 1) / 2);
  }
  if (options.in != NULL && rank == 0) PauseIn(options.in, options.pause_us);
  else usleep((useconds_t)(options.uneven ? options.pause_us * (rank + 1) : options.pause_us));
}

int main(int argc, char **argv) {
  int rebuilt = 0, over = 0;
  tell = stdout;
  if (argc == 2 && strcmp(argv[1], "-serve") == 0) Serve(0, 1);
  ParseOptions(argc, argv);
  for (int i = 0; i < held_count; ++i)
    if (held[i].holding->early) held[i].holding->begin(held[i].argument);
  if (options.before != NULL) printf("starts\n"), fflush(stdout);
  WaitFor(options.before);
  if (XMPI_Init(&argc, &argv) != MPI_SUCCESS) return 2;
  MPI_Comm_rank(XMPI_COMM_WORLD, &rank);
  MPI_Comm_size(XMPI_COMM_WORLD, &size);
  for (int i = 0; i < held_count; ++i)
    if (!held[i].holding->early) held[i].holding->begin(held[i].argument);
  if (rank == 0) printf("runs\n"), fflush(stdout);
  while (!over) {
    Step(rebuilt);
    over = Over();
    ++step;
    XMPI_Quiesce(&rebuilt);
    moves += rebuilt;
  }
  for (int i = 0; i < held_count; ++i)
    if (held[i].holding->end != NULL) held[i].holding->end();
  fprintf(tell, "%d ended well: steps %ld moves %d\n", rank, step, moves);
  fflush(tell);
  XMPI_Finalize();
  WaitFor(options.after);
  return 0;
}
