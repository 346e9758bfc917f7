// A fence of the KVS as it travels between the slots' Servers and the Hub. Plain values.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "pmi/kvs.h"

namespace xmpi::pmi {

// The n-th barrier (from 1) of a generation. {0, 0} is before all fences.
struct FenceId {
  Generation generation = 0;
  std::uint32_t n = 0;
  auto operator<=>(const FenceId&) const = default;
};

// All local ranks of a slot are in the fence; their puts since the last one, by key.
struct FenceIn {
  FenceId id;
  std::vector<Put> puts;
  bool operator==(const FenceIn&) const = default;
};

// The fence is open; the puts of all slots.
struct FenceOut {
  FenceId id;
  std::vector<Put> puts;
  bool operator==(const FenceOut&) const = default;
};

}  // namespace xmpi::pmi
