#include "rank/keeping.h"

#include <algorithm>
#include <ranges>

#include "rank/books.h"
#include "rank/say.h"
#include "rank/session.h"

namespace xmpi::rank {

Keeping keeping;

Result<> Keeping::Bind(MPI_Comm* variable, MPI_Comm world) {
  if (variable == nullptr) return Fail(ErrorCode::kUsage, "the variable's address is NULL");
  if (busy_) return Fail(ErrorCode::kUsage, "what a registered make function makes is not bound");
  if (*variable == MPI_COMM_NULL || variable == &xmpi_comm_world) return {};
  const auto same = [variable](const Kept& kept) { return kept.variable == variable; };
  const auto found = std::ranges::find_if(kept_, same);
  if (found != kept_.end()) {
    if (found->comm == *variable) return {};
    return Fail(ErrorCode::kUsage,
                "the variable is bound already, to a communicator that it no longer holds; "
                "XMPI_Comm_unbind it or free that one first");
  }
  Kept kept{.variable = variable, .comm = *variable, .is_world = *variable == world};
  if (!kept.is_world) {
    int is_inter = 0;
    PMPI_Comm_test_inter(kept.comm, &is_inter);
    if (is_inter) return Fail("an intercommunicator cannot be bound; make it in XMPI_Register");
    // Lamport's clock: greater than the number of every communicator that a member bound before.
    int number = 0;
    XMPI_RETURN_IF_ERROR(
        FromMpi(PMPI_Allreduce(&clock_, &number, 1, MPI_INT, MPI_MAX, kept.comm), "MPI_Allreduce"));
    clock_ = number + 1;
    XMPI_ASSIGN_OR_RETURN(kept.recipe, CommRecipe::Of(kept.comm, world, clock_));
  }
  kept_.push_back(std::move(kept));
  return {};
}

Result<> Keeping::Unbind(MPI_Comm* variable) {
  const auto same = [variable](const Kept& kept) { return kept.variable == variable; };
  const auto found = std::ranges::find_if(kept_, same);
  if (busy_) return Fail(ErrorCode::kUsage, "it was called inside a callback of XMPI_Register");
  if (variable == nullptr || found == kept_.end())
    return Fail(ErrorCode::kUsage, "the variable is not bound");
  kept_.erase(found);
  return {};
}

Result<> Keeping::Register(XMPI_Make_function* make, XMPI_Release_function* release,
                           void* extra_state, MPI_Comm world) {
  if (busy_) return Fail(ErrorCode::kUsage, "it was called inside a callback of XMPI_Register");
  Kept kept{.make = make, .release = release, .extra_state = extra_state};
  busy_ = true;
  const auto made = Make(kept, world);
  busy_ = false;
  XMPI_RETURN_IF_ERROR(made);
  kept_.push_back(std::move(kept));
  return {};
}

bool Keeping::Holds(MPI_Comm comm) const {
  return std::ranges::any_of(kept_, [comm](const Kept& kept) { return kept.comm == comm; });
}

void Keeping::Forget(MPI_Comm comm) {
  const auto bound = [comm](const Kept& kept) {
    return kept.variable != nullptr && kept.comm == comm;
  };
  if (!busy_) return void(std::erase_if(kept_, bound));
  // A callback frees it while kept_ is walked: leave an entry that does nothing.
  for (Kept& kept : kept_)
    if (bound(kept)) kept = Kept{};
}

std::string Keeping::Obstacle() const {
  for (const Kept& kept : kept_) {
    if (kept.variable == nullptr || *kept.variable == kept.comm) continue;
    char name[MPI_MAX_OBJECT_NAME] = "";
    int length = 0;
    PMPI_Comm_get_name(kept.comm, name, &length);
    return "the variable bound to communicator \"" + std::string(name) +
           "\" no longer holds it: XMPI_Comm_unbind the variable before changing it";
  }
  return {};
}

std::vector<MPI_Comm> Keeping::Comms() const {
  std::vector<MPI_Comm> comms;
  for (const Kept& kept : kept_)
    if (kept.variable != nullptr && !kept.is_world) comms.push_back(kept.comm);
  return comms;
}

Result<> Keeping::Make(const Kept& kept, MPI_Comm world) {
  if (kept.make == nullptr) return {};
  books.SetRegistering(true);
  const int code = kept.make(world, kept.extra_state);
  books.SetRegistering(false);
  return FromMpi(code, "the registered make function");
}

void Keeping::Release(Kept* kept) {
  if (kept->variable == nullptr) {
    const int code = kept->release == nullptr ? MPI_SUCCESS : kept->release(kept->extra_state);
    if (const auto released = FromMpi(code, "the registered release function"); !released)
      Say("%s; going on", released.error().message.c_str());
    return;
  }
  if (!kept->is_world) {
    kept->recipe.NoteLastState(kept->comm);
    books.Gone(Thing::kComm, Handle(kept->comm));
    if (const auto freed = FromMpi(PMPI_Comm_free(&kept->comm), "MPI_Comm_free"); !freed)
      Say("freeing a bound communicator: %s; going on", freed.error().message.c_str());
  }
  kept->comm = MPI_COMM_NULL;
  *kept->variable = MPI_COMM_NULL;
}

void Keeping::ReleaseAll() {
  busy_ = true;
  for (Kept& kept : std::views::reverse(kept_)) Release(&kept);
  busy_ = false;
}

Result<> Keeping::MakeAll(MPI_Comm world) {
  busy_ = true;
  for (Kept& kept : kept_) {
    if (kept.variable == nullptr) {
      XMPI_RETURN_IF_ERROR(Make(kept, world));
      continue;
    }
    kept.comm = world;
    if (!kept.is_world) {
      XMPI_ASSIGN_OR_RETURN(kept.comm, kept.recipe.Make(world));
      if (books.on()) books.Made(Thing::kComm, Handle(kept.comm), "XMPI_Comm_bind");
    }
    *kept.variable = kept.comm;
  }
  busy_ = false;
  return {};
}

}  // namespace xmpi::rank
