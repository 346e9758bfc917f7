// The launcher's side of PMI: one Hub per job. It opens a fence when every slot is in it, and keeps
// the names that ranks publish. Values in, values out; no socket and no clock. It owns the puts of
// slots that wait, at most one fence per slot; it never keeps a generation: what a fence published
// lives in the slots' Servers, so its state does not grow with the number of generations.
//
// Every slot goes through its fences in the order (generation, n) and waits in each, so all fences
// of a job open in that order, and "opened up to here" is all there is to remember of the past.
// Which proxy speaks for a slot is not decided here: messages of another epoch never get this far.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "pmi/fence.h"

namespace xmpi::pmi {

class Hub {
 public:
  explicit Hub(SlotId slots);

  // Slot `slot` is in the fence with its puts. If all are, the fence that every slot is to be told
  // of, with the puts of all slots in slot order. A replay changes nothing. An error (kProtocol)
  // names the slot that broke the order, or says that the slots wait in different fences for ever.
  Result<std::optional<FenceOut>> OnFenceIn(SlotId slot, FenceIn fence);

  // The proxy that spoke for `slot` is lost: its puts of this generation go, and the slot can join
  // the same fence again. kRefused once the generation's first fence is open: others use the puts.
  Result<> DropSlot(SlotId slot, Generation generation);

  // Has the first fence of this generation opened? Also true for one that all have gone past.
  bool FenceOpen(Generation generation) const;

  // The slots that are in no fence while others wait: whom the job is waiting for.
  std::vector<SlotId> Absent() const;

  Result<> Publish(std::string_view name, std::string_view port);
  Result<> Unpublish(std::string_view name);
  Result<std::string> Lookup(std::string_view name) const;

 private:
  std::string Mismatch() const;

  std::vector<std::optional<FenceIn>> waiting_;  // by slot
  FenceId opened_;                               // the last fence that opened
  std::map<std::string, std::string, std::less<>> names_;
};

}  // namespace xmpi::pmi
