#include "rank/comm_recipe.h"

#include <algorithm>
#include <numeric>

#include "rank/mpich_faults.h"
#include "rank/session.h"

namespace xmpi::rank {
namespace {

// MPI guarantees tags up to 32767; communicators with a common member never share a number below.
constexpr int kTags = 32768;

}  // namespace

Result<CommRecipe> CommRecipe::Of(MPI_Comm comm, MPI_Comm world, int number) {
  CommRecipe recipe;
  recipe.number_ = number;
  XMPI_RETURN_IF_ERROR(recipe.ReadMembers(comm, world));
  XMPI_RETURN_IF_ERROR(recipe.ReadTopology(comm));
  return recipe;
}

Result<> CommRecipe::ReadMembers(MPI_Comm comm, MPI_Comm world) {
  int size = 0;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group world_group = MPI_GROUP_NULL;
  XMPI_RETURN_IF_ERROR(FromMpi(PMPI_Comm_group(comm, &group), "MPI_Comm_group"));
  XMPI_RETURN_IF_ERROR(FromMpi(PMPI_Comm_group(world, &world_group), "MPI_Comm_group"));
  PMPI_Group_size(group, &size);
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  members_.resize(size);
  const int code =
      PMPI_Group_translate_ranks(group, size, ranks.data(), world_group, members_.data());
  PMPI_Group_free(&group);
  PMPI_Group_free(&world_group);
  XMPI_RETURN_IF_ERROR(FromMpi(code, "MPI_Group_translate_ranks"));
  if (std::ranges::contains(members_, MPI_UNDEFINED))
    return Fail("it has a member outside XMPI_COMM_WORLD");
  return {};
}

Result<> CommRecipe::ReadTopology(MPI_Comm comm) {
  XMPI_RETURN_IF_ERROR(FromMpi(PMPI_Topo_test(comm, &topology_), "MPI_Topo_test"));
  if (topology_ == MPI_CART) {
    int count = 0;
    PMPI_Cartdim_get(comm, &count);
    dims_.resize(count);
    periods_.resize(count);
    std::vector<int> coordinates(count);
    return FromMpi(PMPI_Cart_get(comm, count, dims_.data(), periods_.data(), coordinates.data()),
                   "MPI_Cart_get");
  }
  if (topology_ == MPI_GRAPH) {
    int nodes = 0;
    int edges = 0;
    PMPI_Graphdims_get(comm, &nodes, &edges);
    index_.resize(nodes);
    edges_.resize(edges);
    return FromMpi(PMPI_Graph_get(comm, nodes, edges, index_.data(), edges_.data()),
                   "MPI_Graph_get");
  }
  if (topology_ == MPI_DIST_GRAPH) {
    int in = 0;
    int out = 0;
    int weighted = 0;
    PMPI_Dist_graph_neighbors_count(comm, &in, &out, &weighted);
    weighted_ = weighted != 0;
    // One spare element each: MPI wants a valid pointer even for none.
    sources_.resize(in + 1), source_weights_.resize(in + 1);
    destinations_.resize(out + 1), destination_weights_.resize(out + 1);
    const int code = PMPI_Dist_graph_neighbors(
        comm, in, sources_.data(), weighted_ ? source_weights_.data() : MPI_UNWEIGHTED, out,
        destinations_.data(), weighted_ ? destination_weights_.data() : MPI_UNWEIGHTED);
    return FromMpi(code, "MPI_Dist_graph_neighbors");
  }
  return {};
}

void CommRecipe::NoteLastState(MPI_Comm comm) {
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  PMPI_Comm_get_name(comm, name, &length);
  name_ = name;
  if (errhandler_ != MPI_ERRHANDLER_NULL) PMPI_Errhandler_free(&errhandler_);
  PMPI_Comm_get_errhandler(comm, &errhandler_);
}

Result<MPI_Comm> CommRecipe::MakePlain(MPI_Comm world) const {
  MPI_Group world_group = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  PMPI_Comm_group(world, &world_group);
  int code =
      PMPI_Group_incl(world_group, static_cast<int>(members_.size()), members_.data(), &group);
  if (code == MPI_SUCCESS) {
    code = PMPI_Comm_create_group(world, group, number_ % kTags, &comm);
    PMPI_Group_free(&group);
  }
  PMPI_Group_free(&world_group);
  XMPI_RETURN_IF_ERROR(FromMpi(code, "MPI_Comm_create_group"));
  return comm;
}

// Nothing is reordered: the members are already in the order that the program knows.
Result<> CommRecipe::AddTopology(MPI_Comm plain, MPI_Comm* made) const {
  if (topology_ == MPI_CART)
    return FromMpi(PMPI_Cart_create(plain, static_cast<int>(dims_.size()), dims_.data(),
                                    periods_.data(), 0, made),
                   "MPI_Cart_create");
  if (topology_ == MPI_GRAPH)
    return FromMpi(PMPI_Graph_create(plain, static_cast<int>(index_.size()), index_.data(),
                                     edges_.data(), 0, made),
                   "MPI_Graph_create");
  return FromMpi(
      PMPI_Dist_graph_create_adjacent(
          plain, static_cast<int>(sources_.size()) - 1, sources_.data(),
          weighted_ ? source_weights_.data() : MPI_UNWEIGHTED,
          static_cast<int>(destinations_.size()) - 1, destinations_.data(),
          weighted_ ? destination_weights_.data() : MPI_UNWEIGHTED, MPI_INFO_NULL, 0, made),
      "MPI_Dist_graph_create_adjacent");
}

Result<MPI_Comm> CommRecipe::Make(MPI_Comm world) const {
  XMPI_ASSIGN_OR_RETURN(MPI_Comm comm, MakePlain(world));
  if (topology_ != MPI_UNDEFINED) {
    mpich_faults.Use(Pool::kTopology);
    MPI_Comm plain = comm;
    const auto made = AddTopology(plain, &comm);
    PMPI_Comm_free(&plain);
    XMPI_RETURN_IF_ERROR(made);
  }
  if (!name_.empty()) PMPI_Comm_set_name(comm, name_.c_str());
  if (errhandler_ != MPI_ERRHANDLER_NULL) PMPI_Comm_set_errhandler(comm, errhandler_);
  return comm;
}

}  // namespace xmpi::rank
