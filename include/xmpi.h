/* XMPI: let a running MPI job leave a node.
 *
 * A program opens the world with XMPI_Init instead of MPI_Init, uses XMPI_COMM_WORLD for
 * MPI_COMM_WORLD, and calls XMPI_Quiesce where it can stop. Under xmpiexec the ranks may then move
 * to another node between two of those calls; under any other launcher every call works and
 * XMPI_Quiesce does nothing. All functions return MPI_SUCCESS or an MPI error code, after a line on
 * stderr that names the rank. See XMPI_Quiesce(3) and docs/api.md.
 */
#pragma once

#include <mpi.h>

#define XMPI_VERSION_MAJOR 0
#define XMPI_VERSION_MINOR 1
#define XMPI_VERSION_PATCH 0

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

/* The current world. It is made anew when the job moves, under the same ranks; so use the name,
 * or bind a copy of it with XMPI_Comm_bind. MPI_COMM_NULL before XMPI_Init and after XMPI_Finalize. */
extern MPI_Comm xmpi_comm_world;
#define XMPI_COMM_WORLD xmpi_comm_world

int XMPI_Init(int *argc, char ***argv);
int XMPI_Init_thread(int *argc, char ***argv, int required, int *provided);
int XMPI_Finalize(void);
int XMPI_Abort(MPI_Comm comm, int errorcode);
int XMPI_Version(int *major, int *minor, int *patch);

/* The safe point, collective over the world in MPI's sense: all ranks make the same sequence of
 * these calls, each from the thread that called XMPI_Init. At the call a rank has no pending
 * request, no open window or MPI-IO file, and no message that was sent but not yet received; what
 * breaks this is refused by name and the job goes on. *rebuilt (may be NULL) becomes 1 when the MPI
 * objects were torn down and made anew in this call, else 0. */
int XMPI_Quiesce(int *rebuilt);
int XMPI_quiesce(int *rebuilt); /* the paper's spelling */

/* Keep *comm valid: freed before the session closes, made again into the same variable afterwards
 * with the same members, order, topology, name and error handler. Collective over *comm; the
 * variable must live until it is unbound or freed. MPI_COMM_NULL is allowed and means nothing.
 * MPI_Comm_free of a bound communicator unbinds it. */
int XMPI_Comm_bind(MPI_Comm *comm);
int XMPI_Comm_unbind(MPI_Comm *comm);

/* For what XMPI cannot make again by itself (persistent requests, windows, derived types, libraries):
 * `make` is called at once and after each reopening, `release` before each close, in the reverse
 * order of registration. Either may be NULL. Both return MPI_SUCCESS or an error code. */
typedef int XMPI_Make_function(MPI_Comm world, void *extra_state);
typedef int XMPI_Release_function(void *extra_state);
int XMPI_Register(XMPI_Make_function *make, XMPI_Release_function *release, void *extra_state);

/* ---- Below: how the safe point is inlined. Not for use by name. ---- */

typedef struct {
  unsigned long long passed; /* calls entered; written by the calling thread only */
  int requested;             /* not 0: the call has something to do */
  int reserved;
} xmpi_safe_point_t;
extern xmpi_safe_point_t xmpi_safe_point;

#ifdef __GNUC__
__attribute__((cold, noinline))
#endif
int xmpi_quiesce_slow(int *rebuilt);

#if defined(__GNUC__) && defined(__LP64__)
/* The store of the count comes before the load of the flag: a signal in between is then either
 * reported with this call counted, or seen by this call (or both), never neither. The handler runs
 * on this thread, so a signal fence is enough. */
static inline int xmpi_quiesce_inline(int *rebuilt) {
  __atomic_store_n(&xmpi_safe_point.passed,
                   __atomic_load_n(&xmpi_safe_point.passed, __ATOMIC_RELAXED) + 1,
                   __ATOMIC_RELAXED);
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  if (__builtin_expect(__atomic_load_n(&xmpi_safe_point.requested, __ATOMIC_RELAXED) != 0, 0))
    return xmpi_quiesce_slow(rebuilt);
  if (rebuilt) *rebuilt = 0;
  return MPI_SUCCESS;
}
#define XMPI_Quiesce(rebuilt) xmpi_quiesce_inline(rebuilt)
#define XMPI_quiesce(rebuilt) xmpi_quiesce_inline(rebuilt)
#endif

#ifdef __cplusplus
}
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif
