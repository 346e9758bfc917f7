// What the program asked to keep across sessions: bound communicators and registered callbacks, in
// the order they were given. Released in reverse order before a close, made again in order after a
// reopening. The order is safe: binding is collective, so two communicators with a common member
// were bound in the same order by every common member, and making them again cannot deadlock.
// It owns the bound communicators while they are bound; it never looks at the control socket.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "rank/comm_recipe.h"
#include "xmpi.h"

namespace xmpi::rank {

class Keeping {
 public:
  Result<> Bind(MPI_Comm* variable, MPI_Comm world);
  Result<> Unbind(MPI_Comm* variable);
  Result<> Register(XMPI_Make_function* make, XMPI_Release_function* release, void* extra_state,
                    MPI_Comm world);

  bool Holds(MPI_Comm comm) const;
  // The program freed `comm` itself.
  void Forget(MPI_Comm comm);

  // A bound variable that no longer holds what was bound, in words; empty when all is well.
  std::string Obstacle() const;
  std::vector<MPI_Comm> Comms() const;

  void ReleaseAll();
  Result<> MakeAll(MPI_Comm world);
  void Clear() { kept_.clear(); }

 private:
  struct Kept {
    MPI_Comm* variable = nullptr;   // bound: the program's variable ...
    MPI_Comm comm = MPI_COMM_NULL;  // ... and what it held
    bool is_world = false;          // a copy of XMPI_COMM_WORLD: refilled, never freed
    CommRecipe recipe{};
    XMPI_Make_function* make = nullptr;
    XMPI_Release_function* release = nullptr;
    void* extra_state = nullptr;
  };

  static Result<> Make(const Kept& kept, MPI_Comm world);
  static void Release(Kept* kept);

  std::vector<Kept> kept_;
  int clock_ = 0;      // the number of the last communicator bound here
  bool busy_ = false;  // inside a callback
};

extern Keeping keeping;

}  // namespace xmpi::rank
