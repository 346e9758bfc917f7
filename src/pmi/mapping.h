// PMI_process_mapping: which ranks share a "PMI node", in the string form MPICH reads,
// "(vector,(first node,nodes,ranks per node),...)", ranks in order, the list repeated until all
// ranks have a place. Our PMI node is the slot, wherever it sits, so the string is the same before
// and after a migration and MPI's reduction order with it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/ids.h"

namespace xmpi::pmi {

// `slot_of_rank[r]` is the slot of rank r. Refused if the string is longer than a PMI value may be
// (a placement with very many different runs).
Result<std::string> BuildMapping(const std::vector<SlotId>& slot_of_rank);

// The inverse, as MPICH reads it.
Result<std::vector<SlotId>> ParseMapping(std::string_view mapping, std::uint32_t job_size);

}  // namespace xmpi::pmi
