// The MPI calls that make a request, one line each: name, then the types of its parameters, of
// which the last is the MPI_Request*. Nothing else; wrap_requests.cc gives each line its wrapper.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

// One operation, done when its request is completed or freed.
#define XMPI_IMMEDIATE_CALLS(X)                                                                    \
  X(Iallgather, const void*, int, MPI_Datatype, void*, int, MPI_Datatype, MPI_Comm, MPI_Request*)  \
  X(Iallgatherv, const void*, int, MPI_Datatype, void*, const int*, const int*, MPI_Datatype,      \
    MPI_Comm, MPI_Request*)                                                                        \
  X(Iallreduce, const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request*)             \
  X(Ialltoall, const void*, int, MPI_Datatype, void*, int, MPI_Datatype, MPI_Comm, MPI_Request*)   \
  X(Ialltoallv, const void*, const int*, const int*, MPI_Datatype, void*, const int*, const int*,  \
    MPI_Datatype, MPI_Comm, MPI_Request*)                                                          \
  X(Ialltoallw, const void*, const int*, const int*, const MPI_Datatype*, void*, const int*,       \
    const int*, const MPI_Datatype*, MPI_Comm, MPI_Request*)                                       \
  X(Ibarrier, MPI_Comm, MPI_Request*)                                                              \
  X(Ibcast, void*, int, MPI_Datatype, int, MPI_Comm, MPI_Request*)                                 \
  X(Iexscan, const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request*)                \
  X(Igather, const void*, int, MPI_Datatype, void*, int, MPI_Datatype, int, MPI_Comm,              \
    MPI_Request*)                                                                                  \
  X(Igatherv, const void*, int, MPI_Datatype, void*, const int*, const int*, MPI_Datatype, int,    \
    MPI_Comm, MPI_Request*)                                                                        \
  X(Ineighbor_allgather, const void*, int, MPI_Datatype, void*, int, MPI_Datatype, MPI_Comm,       \
    MPI_Request*)                                                                                  \
  X(Ineighbor_allgatherv, const void*, int, MPI_Datatype, void*, const int*, const int*,           \
    MPI_Datatype, MPI_Comm, MPI_Request*)                                                          \
  X(Ineighbor_alltoall, const void*, int, MPI_Datatype, void*, int, MPI_Datatype, MPI_Comm,        \
    MPI_Request*)                                                                                  \
  X(Ineighbor_alltoallv, const void*, const int*, const int*, MPI_Datatype, void*, const int*,     \
    const int*, MPI_Datatype, MPI_Comm, MPI_Request*)                                              \
  X(Ineighbor_alltoallw, const void*, const int*, const MPI_Aint*, const MPI_Datatype*, void*,     \
    const int*, const MPI_Aint*, const MPI_Datatype*, MPI_Comm, MPI_Request*)                      \
  X(Ireduce, const void*, void*, int, MPI_Datatype, MPI_Op, int, MPI_Comm, MPI_Request*)           \
  X(Ireduce_scatter, const void*, void*, const int*, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request*) \
  X(Ireduce_scatter_block, const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request*)  \
  X(Iscan, const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request*)                  \
  X(Iscatter, const void*, int, MPI_Datatype, void*, int, MPI_Datatype, int, MPI_Comm,             \
    MPI_Request*)                                                                                  \
  X(Iscatterv, const void*, const int*, const int*, MPI_Datatype, void*, int, MPI_Datatype, int,   \
    MPI_Comm, MPI_Request*)                                                                        \
  X(Ibsend, const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)                      \
  X(Imrecv, void*, int, MPI_Datatype, MPI_Message*, MPI_Request*)                                  \
  X(Irecv, void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)                             \
  X(Irsend, const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)                      \
  X(Isend, const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)                       \
  X(Isendrecv, const void*, int, MPI_Datatype, int, int, void*, int, MPI_Datatype, int, int,       \
    MPI_Comm, MPI_Request*)                                                                        \
  X(Isendrecv_replace, void*, int, MPI_Datatype, int, int, int, int, MPI_Comm, MPI_Request*)       \
  X(Issend, const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)                      \
  X(Grequest_start, MPI_Grequest_query_function*, MPI_Grequest_free_function*,                     \
    MPI_Grequest_cancel_function*, void*, MPI_Request*)                                            \
  X(Raccumulate, const void*, int, MPI_Datatype, int, MPI_Aint, int, MPI_Datatype, MPI_Op,         \
    MPI_Win, MPI_Request*)                                                                         \
  X(Rget, void*, int, MPI_Datatype, int, MPI_Aint, int, MPI_Datatype, MPI_Win, MPI_Request*)       \
  X(Rget_accumulate, const void*, int, MPI_Datatype, void*, int, MPI_Datatype, int, MPI_Aint, int, \
    MPI_Datatype, MPI_Op, MPI_Win, MPI_Request*)                                                   \
  X(Rput, const void*, int, MPI_Datatype, int, MPI_Aint, int, MPI_Datatype, MPI_Win, MPI_Request*)

// A persistent or partitioned request: idle until started, there until freed.
#define XMPI_PERSISTENT_CALLS(X)                                                                   \
  X(Allgather_init, const void*, int, MPI_Datatype, void*, int, MPI_Datatype, MPI_Comm, MPI_Info,  \
    MPI_Request*)                                                                                  \
  X(Allgatherv_init, const void*, int, MPI_Datatype, void*, const int*, const int*, MPI_Datatype,  \
    MPI_Comm, MPI_Info, MPI_Request*)                                                              \
  X(Allreduce_init, const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info,             \
    MPI_Request*)                                                                                  \
  X(Alltoall_init, const void*, int, MPI_Datatype, void*, int, MPI_Datatype, MPI_Comm, MPI_Info,   \
    MPI_Request*)                                                                                  \
  X(Alltoallv_init, const void*, const int*, const int*, MPI_Datatype, void*, const int*,          \
    const int*, MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request*)                                    \
  X(Alltoallw_init, const void*, const int*, const int*, const MPI_Datatype*, void*, const int*,   \
    const int*, const MPI_Datatype*, MPI_Comm, MPI_Info, MPI_Request*)                             \
  X(Barrier_init, MPI_Comm, MPI_Info, MPI_Request*)                                                \
  X(Bcast_init, void*, int, MPI_Datatype, int, MPI_Comm, MPI_Info, MPI_Request*)                   \
  X(Exscan_init, const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info, MPI_Request*)  \
  X(Gather_init, const void*, int, MPI_Datatype, void*, int, MPI_Datatype, int, MPI_Comm,          \
    MPI_Info, MPI_Request*)                                                                        \
  X(Gatherv_init, const void*, int, MPI_Datatype, void*, const int*, const int*, MPI_Datatype,     \
    int, MPI_Comm, MPI_Info, MPI_Request*)                                                         \
  X(Neighbor_allgather_init, const void*, int, MPI_Datatype, void*, int, MPI_Datatype, MPI_Comm,   \
    MPI_Info, MPI_Request*)                                                                        \
  X(Neighbor_allgatherv_init, const void*, int, MPI_Datatype, void*, const int*, const int*,       \
    MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request*)                                                \
  X(Neighbor_alltoall_init, const void*, int, MPI_Datatype, void*, int, MPI_Datatype, MPI_Comm,    \
    MPI_Info, MPI_Request*)                                                                        \
  X(Neighbor_alltoallv_init, const void*, const int*, const int*, MPI_Datatype, void*, const int*, \
    const int*, MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request*)                                    \
  X(Neighbor_alltoallw_init, const void*, const int*, const MPI_Aint*, const MPI_Datatype*, void*, \
    const int*, const MPI_Aint*, const MPI_Datatype*, MPI_Comm, MPI_Info, MPI_Request*)            \
  X(Reduce_init, const void*, void*, int, MPI_Datatype, MPI_Op, int, MPI_Comm, MPI_Info,           \
    MPI_Request*)                                                                                  \
  X(Reduce_scatter_block_init, const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info,  \
    MPI_Request*)                                                                                  \
  X(Reduce_scatter_init, const void*, void*, const int*, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info, \
    MPI_Request*)                                                                                  \
  X(Scan_init, const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info, MPI_Request*)    \
  X(Scatter_init, const void*, int, MPI_Datatype, void*, int, MPI_Datatype, int, MPI_Comm,         \
    MPI_Info, MPI_Request*)                                                                        \
  X(Scatterv_init, const void*, const int*, const int*, MPI_Datatype, void*, int, MPI_Datatype,    \
    int, MPI_Comm, MPI_Info, MPI_Request*)                                                         \
  X(Precv_init, void*, int, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Info, MPI_Request*)   \
  X(Psend_init, const void*, int, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Info,           \
    MPI_Request*)                                                                                  \
  X(Bsend_init, const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)                  \
  X(Recv_init, void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)                         \
  X(Rsend_init, const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)                  \
  X(Send_init, const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)                   \
  X(Ssend_init, const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)

// The same with large counts, which came with MPI 4.
#if MPI_VERSION >= 4
#define XMPI_IMMEDIATE_LARGE_CALLS(X)                                                              \
  X(Iallgather_c, const void*, MPI_Count, MPI_Datatype, void*, MPI_Count, MPI_Datatype, MPI_Comm,  \
    MPI_Request*)                                                                                  \
  X(Iallgatherv_c, const void*, MPI_Count, MPI_Datatype, void*, const MPI_Count*, const MPI_Aint*, \
    MPI_Datatype, MPI_Comm, MPI_Request*)                                                          \
  X(Iallreduce_c, const void*, void*, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request*)     \
  X(Ialltoall_c, const void*, MPI_Count, MPI_Datatype, void*, MPI_Count, MPI_Datatype, MPI_Comm,   \
    MPI_Request*)                                                                                  \
  X(Ialltoallv_c, const void*, const MPI_Count*, const MPI_Aint*, MPI_Datatype, void*,             \
    const MPI_Count*, const MPI_Aint*, MPI_Datatype, MPI_Comm, MPI_Request*)                       \
  X(Ialltoallw_c, const void*, const MPI_Count*, const MPI_Aint*, const MPI_Datatype*, void*,      \
    const MPI_Count*, const MPI_Aint*, const MPI_Datatype*, MPI_Comm, MPI_Request*)                \
  X(Ibcast_c, void*, MPI_Count, MPI_Datatype, int, MPI_Comm, MPI_Request*)                         \
  X(Iexscan_c, const void*, void*, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request*)        \
  X(Igather_c, const void*, MPI_Count, MPI_Datatype, void*, MPI_Count, MPI_Datatype, int,          \
    MPI_Comm, MPI_Request*)                                                                        \
  X(Igatherv_c, const void*, MPI_Count, MPI_Datatype, void*, const MPI_Count*, const MPI_Aint*,    \
    MPI_Datatype, int, MPI_Comm, MPI_Request*)                                                     \
  X(Ineighbor_allgather_c, const void*, MPI_Count, MPI_Datatype, void*, MPI_Count, MPI_Datatype,   \
    MPI_Comm, MPI_Request*)                                                                        \
  X(Ineighbor_allgatherv_c, const void*, MPI_Count, MPI_Datatype, void*, const MPI_Count*,         \
    const MPI_Aint*, MPI_Datatype, MPI_Comm, MPI_Request*)                                         \
  X(Ineighbor_alltoall_c, const void*, MPI_Count, MPI_Datatype, void*, MPI_Count, MPI_Datatype,    \
    MPI_Comm, MPI_Request*)                                                                        \
  X(Ineighbor_alltoallv_c, const void*, const MPI_Count*, const MPI_Aint*, MPI_Datatype, void*,    \
    const MPI_Count*, const MPI_Aint*, MPI_Datatype, MPI_Comm, MPI_Request*)                       \
  X(Ineighbor_alltoallw_c, const void*, const MPI_Count*, const MPI_Aint*, const MPI_Datatype*,    \
    void*, const MPI_Count*, const MPI_Aint*, const MPI_Datatype*, MPI_Comm, MPI_Request*)         \
  X(Ireduce_c, const void*, void*, MPI_Count, MPI_Datatype, MPI_Op, int, MPI_Comm, MPI_Request*)   \
  X(Ireduce_scatter_c, const void*, void*, const MPI_Count*, MPI_Datatype, MPI_Op, MPI_Comm,       \
    MPI_Request*)                                                                                  \
  X(Ireduce_scatter_block_c, const void*, void*, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm,        \
    MPI_Request*)                                                                                  \
  X(Iscan_c, const void*, void*, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request*)          \
  X(Iscatter_c, const void*, MPI_Count, MPI_Datatype, void*, MPI_Count, MPI_Datatype, int,         \
    MPI_Comm, MPI_Request*)                                                                        \
  X(Iscatterv_c, const void*, const MPI_Count*, const MPI_Aint*, MPI_Datatype, void*, MPI_Count,   \
    MPI_Datatype, int, MPI_Comm, MPI_Request*)                                                     \
  X(Ibsend_c, const void*, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)              \
  X(Imrecv_c, void*, MPI_Count, MPI_Datatype, MPI_Message*, MPI_Request*)                          \
  X(Irecv_c, void*, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)                     \
  X(Irsend_c, const void*, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)              \
  X(Isend_c, const void*, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)               \
  X(Isendrecv_c, const void*, MPI_Count, MPI_Datatype, int, int, void*, MPI_Count, MPI_Datatype,   \
    int, int, MPI_Comm, MPI_Request*)                                                              \
  X(Isendrecv_replace_c, void*, MPI_Count, MPI_Datatype, int, int, int, int, MPI_Comm,             \
    MPI_Request*)                                                                                  \
  X(Issend_c, const void*, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)              \
  X(Raccumulate_c, const void*, MPI_Count, MPI_Datatype, int, MPI_Aint, MPI_Count, MPI_Datatype,   \
    MPI_Op, MPI_Win, MPI_Request*)                                                                 \
  X(Rget_c, void*, MPI_Count, MPI_Datatype, int, MPI_Aint, MPI_Count, MPI_Datatype, MPI_Win,       \
    MPI_Request*)                                                                                  \
  X(Rget_accumulate_c, const void*, MPI_Count, MPI_Datatype, void*, MPI_Count, MPI_Datatype, int,  \
    MPI_Aint, MPI_Count, MPI_Datatype, MPI_Op, MPI_Win, MPI_Request*)                              \
  X(Rput_c, const void*, MPI_Count, MPI_Datatype, int, MPI_Aint, MPI_Count, MPI_Datatype, MPI_Win, \
    MPI_Request*)

#define XMPI_PERSISTENT_LARGE_CALLS(X)                                                            \
  X(Allgather_init_c, const void*, MPI_Count, MPI_Datatype, void*, MPI_Count, MPI_Datatype,       \
    MPI_Comm, MPI_Info, MPI_Request*)                                                             \
  X(Allgatherv_init_c, const void*, MPI_Count, MPI_Datatype, void*, const MPI_Count*,             \
    const MPI_Aint*, MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request*)                              \
  X(Allreduce_init_c, const void*, void*, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info,    \
    MPI_Request*)                                                                                 \
  X(Alltoall_init_c, const void*, MPI_Count, MPI_Datatype, void*, MPI_Count, MPI_Datatype,        \
    MPI_Comm, MPI_Info, MPI_Request*)                                                             \
  X(Alltoallv_init_c, const void*, const MPI_Count*, const MPI_Aint*, MPI_Datatype, void*,        \
    const MPI_Count*, const MPI_Aint*, MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request*)            \
  X(Alltoallw_init_c, const void*, const MPI_Count*, const MPI_Aint*, const MPI_Datatype*, void*, \
    const MPI_Count*, const MPI_Aint*, const MPI_Datatype*, MPI_Comm, MPI_Info, MPI_Request*)     \
  X(Bcast_init_c, void*, MPI_Count, MPI_Datatype, int, MPI_Comm, MPI_Info, MPI_Request*)          \
  X(Exscan_init_c, const void*, void*, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info,       \
    MPI_Request*)                                                                                 \
  X(Gather_init_c, const void*, MPI_Count, MPI_Datatype, void*, MPI_Count, MPI_Datatype, int,     \
    MPI_Comm, MPI_Info, MPI_Request*)                                                             \
  X(Gatherv_init_c, const void*, MPI_Count, MPI_Datatype, void*, const MPI_Count*,                \
    const MPI_Aint*, MPI_Datatype, int, MPI_Comm, MPI_Info, MPI_Request*)                         \
  X(Neighbor_allgather_init_c, const void*, MPI_Count, MPI_Datatype, void*, MPI_Count,            \
    MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request*)                                               \
  X(Neighbor_allgatherv_init_c, const void*, MPI_Count, MPI_Datatype, void*, const MPI_Count*,    \
    const MPI_Aint*, MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request*)                              \
  X(Neighbor_alltoall_init_c, const void*, MPI_Count, MPI_Datatype, void*, MPI_Count,             \
    MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request*)                                               \
  X(Neighbor_alltoallv_init_c, const void*, const MPI_Count*, const MPI_Aint*, MPI_Datatype,      \
    void*, const MPI_Count*, const MPI_Aint*, MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request*)     \
  X(Neighbor_alltoallw_init_c, const void*, const MPI_Count*, const MPI_Aint*,                    \
    const MPI_Datatype*, void*, const MPI_Count*, const MPI_Aint*, const MPI_Datatype*, MPI_Comm, \
    MPI_Info, MPI_Request*)                                                                       \
  X(Reduce_init_c, const void*, void*, MPI_Count, MPI_Datatype, MPI_Op, int, MPI_Comm, MPI_Info,  \
    MPI_Request*)                                                                                 \
  X(Reduce_scatter_block_init_c, const void*, void*, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm,   \
    MPI_Info, MPI_Request*)                                                                       \
  X(Reduce_scatter_init_c, const void*, void*, const MPI_Count*, MPI_Datatype, MPI_Op, MPI_Comm,  \
    MPI_Info, MPI_Request*)                                                                       \
  X(Scan_init_c, const void*, void*, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info,         \
    MPI_Request*)                                                                                 \
  X(Scatter_init_c, const void*, MPI_Count, MPI_Datatype, void*, MPI_Count, MPI_Datatype, int,    \
    MPI_Comm, MPI_Info, MPI_Request*)                                                             \
  X(Scatterv_init_c, const void*, const MPI_Count*, const MPI_Aint*, MPI_Datatype, void*,         \
    MPI_Count, MPI_Datatype, int, MPI_Comm, MPI_Info, MPI_Request*)                               \
  X(Bsend_init_c, const void*, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)         \
  X(Recv_init_c, void*, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)                \
  X(Rsend_init_c, const void*, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)         \
  X(Send_init_c, const void*, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)          \
  X(Ssend_init_c, const void*, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)
#else
#define XMPI_IMMEDIATE_LARGE_CALLS(X)
#define XMPI_PERSISTENT_LARGE_CALLS(X)
#endif
