// The books: what this rank holds that cannot outlive the session, as seen by the wrappers of the
// MPI calls that make and free it. They answer one question, at stop_call: what is in the way?
// Kept only under our launcher; otherwise a wrapper costs one predictable branch. A lock guards
// them (MPI_THREAD_MULTIPLE), so the signal handler never looks at them. They own no MPI object.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <pthread.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

namespace xmpi::rank {

enum class Thing : std::uint8_t { kRequest, kComm, kWindow, kFile, kType, kSession };
inline constexpr int kThings = 6;

// An MPI handle as a number, whatever an implementation makes of handles (int or pointer).
template <class T>
std::uintptr_t Handle(T handle) {
  static_assert(sizeof(T) <= sizeof(std::uintptr_t));
  std::uintptr_t value = 0;
  std::memcpy(&value, &handle, sizeof(T));
  return value;
}

class Books {
 public:
  struct Entry {
    const char* maker = nullptr;  // "MPI_Isend"
    std::uint32_t count = 0;      // MPI may give one handle to several completed requests
    bool persistent = false;      // a request that outlives its completion
    bool started = false;         // persistent: active
    bool registered = false;      // made inside a `make` callback, whose `release` frees it
  };

  bool on() const { return on_; }
  void Open() { on_ = true; }
  void Close();

  // While true, what is made belongs to a registered callback.
  void SetRegistering(bool registering) { registering_ = registering; }

  void Made(Thing thing, std::uintptr_t handle, const char* maker, bool persistent = false);
  void Gone(Thing thing, std::uintptr_t handle);  // an unknown handle is none of ours: ignored
  void Started(std::uintptr_t request);
  // A request that was completed: forgotten, or idle again if it is persistent.
  void Completed(std::uintptr_t request);
  void Clear();

  // The first thing in the way of a teardown, in words that name its maker and the remedy; empty
  // when nothing is. `kept(comm)` tells whether a communicator is bound.
  template <class Kept>
  std::string Obstacle(const Kept& kept) const;

  std::vector<MPI_Comm> Comms() const;
  // What a teardown would leave behind: "MPI_Type_vector, MPI_Comm_dup"; empty when nothing.
  std::string Leftovers() const;
  std::size_t Count(Thing thing) const;

 private:
  using Table = std::unordered_map<std::uintptr_t, Entry>;
  class Lock {
   public:
    explicit Lock(const Books& books) : mutex_(&books.mutex_) { pthread_mutex_lock(mutex_); }
    ~Lock() { pthread_mutex_unlock(mutex_); }

   private:
    pthread_mutex_t* mutex_;
  };

  const Table& table(Thing thing) const { return tables_[static_cast<int>(thing)]; }
  Table& table(Thing thing) { return tables_[static_cast<int>(thing)]; }
  std::string RequestObstacle() const;
  static std::string CommObstacle(MPI_Comm comm, const Entry& entry);
  std::string OtherObstacle() const;

  mutable pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  Table tables_[kThings];
  bool on_ = false;
  bool registering_ = false;
};

extern Books books;

template <class Kept>
std::string Books::Obstacle(const Kept& kept) const {
  const Lock lock(*this);
  if (std::string text = RequestObstacle(); !text.empty()) return text;
  if (std::string text = OtherObstacle(); !text.empty()) return text;
  for (const auto& [handle, entry] : table(Thing::kComm)) {
    MPI_Comm comm;
    std::memcpy(&comm, &handle, sizeof comm);
    if (!entry.registered && !kept(comm)) return CommObstacle(comm, entry);
  }
  return {};
}

}  // namespace xmpi::rank
