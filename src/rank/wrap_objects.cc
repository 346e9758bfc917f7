// The wrappers of the calls that make and free what dies with its session, and of MPI_Init, which
// does not go together with XMPI_Init.
#include "rank/keeping.h"
#include "rank/mpich_faults.h"
#include "rank/object_calls.h"
#include "rank/say.h"
#include "rank/session.h"
#include "rank/wrap.h"

namespace xmpi::rank {
namespace {

// By kind of thing, not by type: an implementation may make several handle types the same.
template <Thing kThing, class T>
bool IsNull(T object) {
  if constexpr (kThing == Thing::kComm) return object == MPI_COMM_NULL;
  if constexpr (kThing == Thing::kWindow) return object == MPI_WIN_NULL;
  if constexpr (kThing == Thing::kFile) return object == MPI_FILE_NULL;
  if constexpr (kThing == Thing::kType) return object == MPI_DATATYPE_NULL;
  if constexpr (kThing == Thing::kSession) return object == MPI_SESSION_NULL;
}

template <Thing kThing, class T>
void NoteMade(const char* name, const T* object) {
  if (!IsNull<kThing>(*object)) books.Made(kThing, Handle(*object), name);
}

template <Thing kThing, class... Types>
int NoteCall(const char* name, int (*call)(Types...), Types... arguments) {
  const int result = call(arguments...);
  if (books.on() && result == MPI_SUCCESS) [[unlikely]]
    NoteMade<kThing>(name, LastOf(arguments...));
  return result;
}

template <Thing kThing, class T>
int NoteFreed(int (*call)(T*), T* object) {
  if (!books.on()) [[likely]]
    return call(object);
  const T before = *object;
  const int result = call(object);
  if (result == MPI_SUCCESS) books.Gone(kThing, Handle(before));
  return result;
}

// A bound communicator that the program frees is no longer ours to keep, books or no books.
int NoteCommFreed(int (*call)(MPI_Comm*), MPI_Comm* comm) {
  const MPI_Comm before = *comm;
  const int result = NoteFreed<Thing::kComm>(call, comm);
  if (result == MPI_SUCCESS) keeping.Forget(before);
  return result;
}

int RefuseInit(const char* name) {
  Say("%s after XMPI_Init: a program opens the world once; drop the call", name);
  return MPI_ERR_OTHER;
}

}  // namespace

#define XMPI_NOTED(thing)                                                                        \
  template <class... Types>                                                                      \
  int Noted(const char* name, int (*call)(Types...), std::type_identity_t<Types>... arguments) { \
    return NoteCall<thing, Types...>(name, call, arguments...);                                  \
  }

namespace comms {
XMPI_NOTED(Thing::kComm)
XMPI_COMM_CALLS(XMPI_WRAP)
}  // namespace comms

#define XMPI_NOTED_WITH_POOL(thing, pool)                                                        \
  template <class... Types>                                                                      \
  int Noted(const char* name, int (*call)(Types...), std::type_identity_t<Types>... arguments) { \
    mpich_faults.Use(pool);                                                                      \
    return NoteCall<thing, Types...>(name, call, arguments...);                                  \
  }

namespace topologies {
XMPI_NOTED_WITH_POOL(Thing::kComm, Pool::kTopology)
XMPI_TOPOLOGY_CALLS(XMPI_WRAP)
}  // namespace topologies

namespace windows {
XMPI_NOTED_WITH_POOL(Thing::kWindow, Pool::kWindow)
XMPI_WINDOW_CALLS(XMPI_WRAP)
XMPI_WINDOW_LARGE_CALLS(XMPI_WRAP)
}  // namespace windows

namespace types {
XMPI_NOTED_WITH_POOL(Thing::kType, Pool::kType)
XMPI_TYPE_CALLS(XMPI_WRAP)
XMPI_TYPE_LARGE_CALLS(XMPI_WRAP)
}  // namespace types

namespace files {
XMPI_NOTED(Thing::kFile)
XMPI_WRAP(File_open, MPI_Comm, const char*, int, MPI_Info, MPI_File*)
}  // namespace files

namespace sessions {
XMPI_NOTED(Thing::kSession)
XMPI_WRAP(Session_init, MPI_Info, MPI_Errhandler, MPI_Session*)
}  // namespace sessions

#define XMPI_NOTED_POOL(pool)                                                               \
  template <class... Types>                                                                 \
  int Noted(const char*, int (*call)(Types...), std::type_identity_t<Types>... arguments) { \
    mpich_faults.Use(pool);                                                                 \
    return call(arguments...);                                                              \
  }

namespace ops {
XMPI_NOTED_POOL(Pool::kOp)
XMPI_OP_CALLS(XMPI_WRAP)
XMPI_OP_LARGE_CALLS(XMPI_WRAP)
}  // namespace ops

namespace keyvals {
XMPI_NOTED_POOL(Pool::kKeyval)
XMPI_KEYVAL_CALLS(XMPI_WRAP)
}  // namespace keyvals

namespace errhandlers {
XMPI_NOTED_POOL(Pool::kErrhandler)
XMPI_ERRHANDLER_CALLS(XMPI_WRAP)
}  // namespace errhandlers

XMPI_EXPORT int MPI_Comm_idup(MPI_Comm comm, MPI_Comm* copy, MPI_Request* request) {
  const int result = PMPI_Comm_idup(comm, copy, request);
  if (books.on() && result == MPI_SUCCESS) [[unlikely]] {
    NoteMade<Thing::kComm>("MPI_Comm_idup", copy);
    books.Made(Thing::kRequest, Handle(*request), "MPI_Comm_idup");
  }
  return result;
}

XMPI_EXPORT int MPI_Comm_idup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm* copy,
                                        MPI_Request* request) {
  const int result = PMPI_Comm_idup_with_info(comm, info, copy, request);
  if (books.on() && result == MPI_SUCCESS) [[unlikely]] {
    NoteMade<Thing::kComm>("MPI_Comm_idup_with_info", copy);
    books.Made(Thing::kRequest, Handle(*request), "MPI_Comm_idup_with_info");
  }
  return result;
}

XMPI_EXPORT int MPI_Comm_free(MPI_Comm* comm) { return NoteCommFreed(PMPI_Comm_free, comm); }
XMPI_EXPORT int MPI_Comm_disconnect(MPI_Comm* comm) {
  return NoteCommFreed(PMPI_Comm_disconnect, comm);
}
XMPI_EXPORT int MPI_Win_free(MPI_Win* window) {
  return NoteFreed<Thing::kWindow>(PMPI_Win_free, window);
}
XMPI_EXPORT int MPI_Type_free(MPI_Datatype* type) {
  return NoteFreed<Thing::kType>(PMPI_Type_free, type);
}
XMPI_EXPORT int MPI_File_close(MPI_File* file) {
  return NoteFreed<Thing::kFile>(PMPI_File_close, file);
}
XMPI_EXPORT int MPI_Session_finalize(MPI_Session* session) {
  return NoteFreed<Thing::kSession>(PMPI_Session_finalize, session);
}

XMPI_EXPORT int MPI_Init(int* argc, char*** argv) {
  return session.open() ? RefuseInit("MPI_Init") : PMPI_Init(argc, argv);
}
XMPI_EXPORT int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  return session.open() ? RefuseInit("MPI_Init_thread")
                        : PMPI_Init_thread(argc, argv, required, provided);
}

}  // namespace xmpi::rank
