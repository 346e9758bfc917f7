// The MPI calls that make an object which dies with its session, one line each: name, then the
// types of its parameters, of which the last is where the object goes. wrap_objects.cc gives each
// line its wrapper. Calls whose object stands elsewhere (idup, spawn) are written out there.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

// A communicator, by its last argument.
#define XMPI_COMM_CALLS(X)                                                               \
  X(Comm_create, MPI_Comm, MPI_Group, MPI_Comm*)                                         \
  X(Comm_create_group, MPI_Comm, MPI_Group, int, MPI_Comm*)                              \
  X(Comm_dup, MPI_Comm, MPI_Comm*)                                                       \
  X(Comm_dup_with_info, MPI_Comm, MPI_Info, MPI_Comm*)                                   \
  X(Comm_split, MPI_Comm, int, int, MPI_Comm*)                                           \
  X(Comm_split_type, MPI_Comm, int, int, MPI_Info, MPI_Comm*)                            \
  X(Intercomm_create, MPI_Comm, int, MPI_Comm, int, int, MPI_Comm*)                      \
  X(Intercomm_create_from_groups, MPI_Group, int, MPI_Group, int, const char*, MPI_Info, \
    MPI_Errhandler, MPI_Comm*)                                                           \
  X(Intercomm_merge, MPI_Comm, int, MPI_Comm*)                                           \
  X(Comm_create_from_group, MPI_Group, const char*, MPI_Info, MPI_Errhandler, MPI_Comm*) \
  X(Comm_accept, const char*, MPI_Info, int, MPI_Comm, MPI_Comm*)                        \
  X(Comm_connect, const char*, MPI_Info, int, MPI_Comm, MPI_Comm*)                       \
  X(Comm_join, int, MPI_Comm*)

// The same, with a topology.
#define XMPI_TOPOLOGY_CALLS(X)                                                                  \
  X(Cart_create, MPI_Comm, int, const int*, const int*, int, MPI_Comm*)                         \
  X(Cart_sub, MPI_Comm, const int*, MPI_Comm*)                                                  \
  X(Dist_graph_create, MPI_Comm, int, const int*, const int*, const int*, const int*, MPI_Info, \
    int, MPI_Comm*)                                                                             \
  X(Dist_graph_create_adjacent, MPI_Comm, int, const int*, const int*, int, const int*,         \
    const int*, MPI_Info, int, MPI_Comm*)                                                       \
  X(Graph_create, MPI_Comm, int, const int*, const int*, int, MPI_Comm*)

// A window, by its last argument.
#define XMPI_WINDOW_CALLS(X)                                                 \
  X(Win_allocate, MPI_Aint, int, MPI_Info, MPI_Comm, void*, MPI_Win*)        \
  X(Win_allocate_shared, MPI_Aint, int, MPI_Info, MPI_Comm, void*, MPI_Win*) \
  X(Win_create, void*, MPI_Aint, int, MPI_Info, MPI_Comm, MPI_Win*)          \
  X(Win_create_dynamic, MPI_Info, MPI_Comm, MPI_Win*)

// A derived type, by its last argument.
#define XMPI_TYPE_CALLS(X)                                                                    \
  X(Type_contiguous, int, MPI_Datatype, MPI_Datatype*)                                        \
  X(Type_create_darray, int, int, int, const int*, const int*, const int*, const int*, int,   \
    MPI_Datatype, MPI_Datatype*)                                                              \
  X(Type_create_hindexed, int, const int*, const MPI_Aint*, MPI_Datatype, MPI_Datatype*)      \
  X(Type_create_hindexed_block, int, int, const MPI_Aint*, MPI_Datatype, MPI_Datatype*)       \
  X(Type_create_hvector, int, int, MPI_Aint, MPI_Datatype, MPI_Datatype*)                     \
  X(Type_create_indexed_block, int, int, const int*, MPI_Datatype, MPI_Datatype*)             \
  X(Type_create_resized, MPI_Datatype, MPI_Aint, MPI_Aint, MPI_Datatype*)                     \
  X(Type_create_struct, int, const int*, const MPI_Aint*, const MPI_Datatype*, MPI_Datatype*) \
  X(Type_create_subarray, int, const int*, const int*, const int*, int, MPI_Datatype,         \
    MPI_Datatype*)                                                                            \
  X(Type_dup, MPI_Datatype, MPI_Datatype*)                                                    \
  X(Type_indexed, int, const int*, const int*, MPI_Datatype, MPI_Datatype*)                   \
  X(Type_vector, int, int, int, MPI_Datatype, MPI_Datatype*)

// Objects that outlive a session, so that nothing is noted but the kind (see mpich_faults.h): the
// last parameter is nothing special.
#define XMPI_OP_CALLS(X) X(Op_create, MPI_User_function*, int, MPI_Op*)

#define XMPI_KEYVAL_CALLS(X)                                                                       \
  X(Comm_create_keyval, MPI_Comm_copy_attr_function*, MPI_Comm_delete_attr_function*, int*, void*) \
  X(Type_create_keyval, MPI_Type_copy_attr_function*, MPI_Type_delete_attr_function*, int*, void*) \
  X(Win_create_keyval, MPI_Win_copy_attr_function*, MPI_Win_delete_attr_function*, int*, void*)

#define XMPI_ERRHANDLER_CALLS(X)                                            \
  X(Comm_create_errhandler, MPI_Comm_errhandler_function*, MPI_Errhandler*) \
  X(Win_create_errhandler, MPI_Win_errhandler_function*, MPI_Errhandler*)   \
  X(File_create_errhandler, MPI_File_errhandler_function*, MPI_Errhandler*) \
  X(Session_create_errhandler, MPI_Session_errhandler_function*, MPI_Errhandler*)

// The same with large counts, which came with MPI 4.
#if MPI_VERSION >= 4
#define XMPI_WINDOW_LARGE_CALLS(X)                                                  \
  X(Win_allocate_c, MPI_Aint, MPI_Aint, MPI_Info, MPI_Comm, void*, MPI_Win*)        \
  X(Win_allocate_shared_c, MPI_Aint, MPI_Aint, MPI_Info, MPI_Comm, void*, MPI_Win*) \
  X(Win_create_c, void*, MPI_Aint, MPI_Aint, MPI_Info, MPI_Comm, MPI_Win*)

#define XMPI_TYPE_LARGE_CALLS(X)                                                                \
  X(Type_contiguous_c, MPI_Count, MPI_Datatype, MPI_Datatype*)                                  \
  X(Type_create_darray_c, int, int, int, const MPI_Count*, const int*, const int*, const int*,  \
    int, MPI_Datatype, MPI_Datatype*)                                                           \
  X(Type_create_hindexed_c, MPI_Count, const MPI_Count*, const MPI_Count*, MPI_Datatype,        \
    MPI_Datatype*)                                                                              \
  X(Type_create_hindexed_block_c, MPI_Count, MPI_Count, const MPI_Count*, MPI_Datatype,         \
    MPI_Datatype*)                                                                              \
  X(Type_create_hvector_c, MPI_Count, MPI_Count, MPI_Count, MPI_Datatype, MPI_Datatype*)        \
  X(Type_create_indexed_block_c, MPI_Count, MPI_Count, const MPI_Count*, MPI_Datatype,          \
    MPI_Datatype*)                                                                              \
  X(Type_create_resized_c, MPI_Datatype, MPI_Count, MPI_Count, MPI_Datatype*)                   \
  X(Type_create_struct_c, MPI_Count, const MPI_Count*, const MPI_Count*, const MPI_Datatype*,   \
    MPI_Datatype*)                                                                              \
  X(Type_create_subarray_c, int, const MPI_Count*, const MPI_Count*, const MPI_Count*, int,     \
    MPI_Datatype, MPI_Datatype*)                                                                \
  X(Type_indexed_c, MPI_Count, const MPI_Count*, const MPI_Count*, MPI_Datatype, MPI_Datatype*) \
  X(Type_vector_c, MPI_Count, MPI_Count, MPI_Count, MPI_Datatype, MPI_Datatype*)

#define XMPI_OP_LARGE_CALLS(X) X(Op_create_c, MPI_User_function_c*, int, MPI_Op*)
#else
#define XMPI_WINDOW_LARGE_CALLS(X)
#define XMPI_TYPE_LARGE_CALLS(X)
#define XMPI_OP_LARGE_CALLS(X)
#endif
