// The public functions of xmpi.h, except the safe point itself (quiesce.cc).
#include "xmpi.h"

#include <unistd.h>

#include <string>

#include "rank/books.h"
#include "rank/keeping.h"
#include "rank/quiesce.h"
#include "rank/say.h"
#include "rank/session.h"
#include "rank/sockets.h"

#undef XMPI_Quiesce
#undef XMPI_quiesce

namespace xmpi::rank {
namespace {

bool ended = false;

int Code(const char* call, const Result<>& result) {
  if (result) return MPI_SUCCESS;
  Say("%s: %s", call, result.error().message.c_str());
  return result.error().code == ErrorCode::kUsage ? MPI_ERR_ARG : MPI_ERR_OTHER;
}

Result<> MustBeOpen() {
  if (session.open()) return {};
  return Fail(ended ? "called after XMPI_Finalize" : "called before XMPI_Init");
}

Result<> MayOpen() {
  if (ended) return Fail("called again after XMPI_Finalize; a process opens the world once");
  if (session.open()) return Fail("called twice");
  int initialized = 0;
  PMPI_Initialized(&initialized);
  if (initialized)
    return Fail("MPI_Init was called before; a program calls XMPI_Init instead of MPI_Init");
  return {};
}

Result<> Open(int required) {
  ReadDebug();
  XMPI_RETURN_IF_ERROR(MayOpen());
  safe_point.Prepare();
  sockets.Begin();
  if (const auto opened = session.Open(required); !opened) {
    safe_point.Withdraw();
    return opened;
  }
  sockets.End();
  SetSayRank(session.rank());
  if (safe_point.attached()) books.Open();
  safe_point.Start(session.rank());
  return {};
}

Result<> Close() {
  XMPI_RETURN_IF_ERROR(MustBeOpen());
  safe_point.BeginEnd();
  keeping.ReleaseAll();
  keeping.Clear();
  books.Close();
  ended = true;
  const auto closed = session.Close();
  safe_point.End();
  return closed;
}

}  // namespace
}  // namespace xmpi::rank

using namespace xmpi::rank;

int XMPI_Init(int* argc, char*** argv) {
  return XMPI_Init_thread(argc, argv, MPI_THREAD_SINGLE, nullptr);
}

// MPI_Session_init takes no arguments, so neither do we look at them; the parameters are
// MPI_Init's.
int XMPI_Init_thread(int*, char***, int required, int* provided) {
  const auto opened = Open(required);
  if (opened && provided != nullptr) *provided = session.provided();
  return Code("XMPI_Init", opened);
}

int XMPI_Finalize() { return Code("XMPI_Finalize", Close()); }

int XMPI_Abort(MPI_Comm comm, int errorcode) {
  if (session.open()) return PMPI_Abort(comm == MPI_COMM_NULL ? session.world() : comm, errorcode);
  Say("XMPI_Abort outside XMPI_Init and XMPI_Finalize: this process ends with code %d", errorcode);
  _exit(errorcode);
}

int XMPI_Version(int* major, int* minor, int* patch) {
  if (major != nullptr) *major = XMPI_VERSION_MAJOR;
  if (minor != nullptr) *minor = XMPI_VERSION_MINOR;
  if (patch != nullptr) *patch = XMPI_VERSION_PATCH;
  return MPI_SUCCESS;
}

int XMPI_Quiesce(int* rebuilt) { return xmpi_quiesce_inline(rebuilt); }
int XMPI_quiesce(int* rebuilt) { return xmpi_quiesce_inline(rebuilt); }

int XMPI_Comm_bind(MPI_Comm* comm) {
  auto bound = MustBeOpen();
  if (bound) bound = keeping.Bind(comm, session.world());
  return Code("XMPI_Comm_bind", bound);
}

int XMPI_Comm_unbind(MPI_Comm* comm) { return Code("XMPI_Comm_unbind", keeping.Unbind(comm)); }

int XMPI_Register(XMPI_Make_function* make, XMPI_Release_function* release, void* extra_state) {
  auto made = MustBeOpen();
  sockets.Begin();
  if (made) made = keeping.Register(make, release, extra_state, session.world());
  sockets.End();
  safe_point.TellSockets();
  return Code("XMPI_Register", made);
}
