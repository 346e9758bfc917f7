/* seat: a job whose ranks tell where they sit, at the start and after each move, one line each:
 *
 *   seat RANK MOVES host HOST pmi PMI_HOSTNAME mapping MAPPING universe SIZE node RANKS cpus LIST
 *
 * HOST is the kernel's word, MAPPING and SIZE are what PMI answers now, RANKS is how many ranks MPI takes to be on this
 * rank's node, LIST the cores that it may use.
 *
 *   seat FILE    until FILE is there
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xmpi.h>

static int rank;

static void Fail(const char *text) {
  fprintf(stderr, "seat: rank %d: %s\n", rank, text);
  XMPI_Abort(XMPI_COMM_WORLD, 3);
}

/* One PMI-1 question of our own, while MPI has none open. */
static void AskPmi(const char *question, const char *key, char *value, size_t size) {
  const int fd = atoi(getenv("PMI_FD"));
  char answer[4096] = "";
  size_t length = 0;
  if (write(fd, question, strlen(question)) < 0) Fail("PMI does not listen");
  while (length + 1 < sizeof answer && strchr(answer, '\n') == NULL) {
    const ssize_t got = read(fd, answer + length, sizeof answer - 1 - length);
    if (got <= 0) Fail("PMI does not answer");
    length += (size_t)got;
    answer[length] = '\0';
  }
  const char *found = strstr(answer, key);
  if (found == NULL) Fail(answer);
  snprintf(value, size, "%.*s", (int)strcspn(found + strlen(key), " \n"), found + strlen(key));
}

static void CoreList(char *list, size_t size) {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  size_t used = 0;
  list[0] = '\0';
  for (int cpu = 0; cpu < CPU_SETSIZE && used + 8 < size; ++cpu) {
    if (CPU_ISSET(cpu, &set)) used += (size_t)snprintf(list + used, size - used, "%s%d", used ? "," : "", cpu);
  }
}

static void Report(int moves) {
  char host[256], name[256], question[512], mapping[256], universe[64], cores[256];
  int on_node;
  MPI_Comm node;
  gethostname(host, sizeof host);
  AskPmi("cmd=get_my_kvsname\n", "kvsname=", name, sizeof name);
  snprintf(question, sizeof question, "cmd=get kvsname=%s key=PMI_process_mapping\n", name);
  AskPmi(question, "value=", mapping, sizeof mapping);
  AskPmi("cmd=get_universe_size\n", "size=", universe, sizeof universe);
  CoreList(cores, sizeof cores);
  MPI_Comm_split_type(XMPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &on_node);
  MPI_Comm_free(&node);
  printf("seat %d %d host %s pmi %s mapping %s universe %s node %d cpus %s\n", rank, moves, host,
         getenv("PMI_HOSTNAME"), mapping, universe, on_node, cores);
  fflush(stdout);
}

int main(int argc, char **argv) {
  int moves = 0, over = 0;
  if (XMPI_Init(&argc, &argv) != MPI_SUCCESS || argc != 2) return 2;
  MPI_Comm_rank(XMPI_COMM_WORLD, &rank);
  Report(moves);
  while (!over) {
    int rebuilt;
    usleep(3000);
    over = access(argv[1], F_OK) == 0;
    MPI_Bcast(&over, 1, MPI_INT, 0, XMPI_COMM_WORLD);
    XMPI_Quiesce(&rebuilt);
    if (rebuilt) Report(++moves);
  }
  XMPI_Finalize();
  return 0;
}
