// The wrappers of the calls that make, start, complete and free requests.
#include <vector>

#include "rank/request_calls.h"
#include "rank/wrap.h"

namespace xmpi::rank {
namespace {

template <bool kPersistent, class... Types>
int NoteRequest(const char* name, int (*call)(Types...), Types... arguments) {
  const int result = call(arguments...);
  if (!books.on()) [[likely]]
    return result;
  const MPI_Request request = *LastOf(arguments...);
  if (result == MPI_SUCCESS && request != MPI_REQUEST_NULL)
    books.Made(Thing::kRequest, Handle(request), name, kPersistent);
  return result;
}

// The handles as they were before a call that completes some of them and overwrites those.
class Before {
 public:
  Before(int count, const MPI_Request* requests) : requests_(requests) {
    if (count > 0 && requests != nullptr) handles_.assign(requests, requests + count);
  }

  void Completed(int index) const {
    if (index < 0 || static_cast<std::size_t>(index) >= handles_.size()) return;
    if (handles_[index] != MPI_REQUEST_NULL) books.Completed(Handle(handles_[index]));
  }
  void CompletedAll() const {
    for (std::size_t i = 0; i < handles_.size(); ++i) Completed(static_cast<int>(i));
  }
  // After an error MPI says which ones ended only by overwriting them (persistent ones stay).
  void CompletedOverwritten() const {
    for (std::size_t i = 0; i < handles_.size(); ++i)
      if (requests_[i] != handles_[i]) Completed(static_cast<int>(i));
  }

 private:
  const MPI_Request* requests_;
  std::vector<MPI_Request> handles_;
};

}  // namespace

namespace immediate {
template <class... Types>
int Noted(const char* name, int (*call)(Types...), std::type_identity_t<Types>... arguments) {
  return NoteRequest<false, Types...>(name, call, arguments...);
}
XMPI_IMMEDIATE_CALLS(XMPI_WRAP)
XMPI_IMMEDIATE_LARGE_CALLS(XMPI_WRAP)
}  // namespace immediate

namespace persistent {
template <class... Types>
int Noted(const char* name, int (*call)(Types...), std::type_identity_t<Types>... arguments) {
  return NoteRequest<true, Types...>(name, call, arguments...);
}
XMPI_PERSISTENT_CALLS(XMPI_WRAP)
XMPI_PERSISTENT_LARGE_CALLS(XMPI_WRAP)
}  // namespace persistent

XMPI_EXPORT int MPI_Start(MPI_Request* request) {
  const int result = PMPI_Start(request);
  if (books.on() && result == MPI_SUCCESS) books.Started(Handle(*request));
  return result;
}

XMPI_EXPORT int MPI_Startall(int count, MPI_Request requests[]) {
  const int result = PMPI_Startall(count, requests);
  if (books.on() && result == MPI_SUCCESS)
    for (int i = 0; i < count; ++i) books.Started(Handle(requests[i]));
  return result;
}

XMPI_EXPORT int MPI_Request_free(MPI_Request* request) {
  if (!books.on()) [[likely]]
    return PMPI_Request_free(request);
  const MPI_Request before = *request;
  const int result = PMPI_Request_free(request);
  if (result == MPI_SUCCESS) books.Gone(Thing::kRequest, Handle(before));
  return result;
}

XMPI_EXPORT int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  if (!books.on()) [[likely]]
    return PMPI_Wait(request, status);
  const MPI_Request before = *request;
  const int result = PMPI_Wait(request, status);
  if (result == MPI_SUCCESS || *request != before) books.Completed(Handle(before));
  return result;
}

XMPI_EXPORT int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  if (!books.on()) [[likely]]
    return PMPI_Test(request, flag, status);
  const MPI_Request before = *request;
  const int result = PMPI_Test(request, flag, status);
  if ((result == MPI_SUCCESS && *flag) || *request != before) books.Completed(Handle(before));
  return result;
}

XMPI_EXPORT int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
  if (!books.on()) [[likely]]
    return PMPI_Waitall(count, requests, statuses);
  const Before before(count, requests);
  const int result = PMPI_Waitall(count, requests, statuses);
  result == MPI_SUCCESS ? before.CompletedAll() : before.CompletedOverwritten();
  return result;
}

XMPI_EXPORT int MPI_Testall(int count, MPI_Request requests[], int* flag, MPI_Status statuses[]) {
  if (!books.on()) [[likely]]
    return PMPI_Testall(count, requests, flag, statuses);
  const Before before(count, requests);
  const int result = PMPI_Testall(count, requests, flag, statuses);
  if (result != MPI_SUCCESS)
    before.CompletedOverwritten();
  else if (*flag)
    before.CompletedAll();
  return result;
}

XMPI_EXPORT int MPI_Waitany(int count, MPI_Request requests[], int* index, MPI_Status* status) {
  if (!books.on()) [[likely]]
    return PMPI_Waitany(count, requests, index, status);
  const Before before(count, requests);
  const int result = PMPI_Waitany(count, requests, index, status);
  if (*index != MPI_UNDEFINED) before.Completed(*index);
  return result;
}

XMPI_EXPORT int MPI_Testany(int count, MPI_Request requests[], int* index, int* flag,
                            MPI_Status* status) {
  if (!books.on()) [[likely]]
    return PMPI_Testany(count, requests, index, flag, status);
  const Before before(count, requests);
  const int result = PMPI_Testany(count, requests, index, flag, status);
  if (*flag && *index != MPI_UNDEFINED) before.Completed(*index);
  return result;
}

XMPI_EXPORT int MPI_Waitsome(int count, MPI_Request requests[], int* done, int indices[],
                             MPI_Status statuses[]) {
  if (!books.on()) [[likely]]
    return PMPI_Waitsome(count, requests, done, indices, statuses);
  const Before before(count, requests);
  const int result = PMPI_Waitsome(count, requests, done, indices, statuses);
  if (*done != MPI_UNDEFINED)
    for (int i = 0; i < *done; ++i) before.Completed(indices[i]);
  return result;
}

XMPI_EXPORT int MPI_Testsome(int count, MPI_Request requests[], int* done, int indices[],
                             MPI_Status statuses[]) {
  if (!books.on()) [[likely]]
    return PMPI_Testsome(count, requests, done, indices, statuses);
  const Before before(count, requests);
  const int result = PMPI_Testsome(count, requests, done, indices, statuses);
  if (*done != MPI_UNDEFINED)
    for (int i = 0; i < *done; ++i) before.Completed(indices[i]);
  return result;
}

}  // namespace xmpi::rank
