// For tests: a whole job's PMI in one process, several Servers and their Hub with nothing between
// them, so that every action is carried out at once. Answers pile up per rank, one line each.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pmi/hub.h"
#include "pmi/server.h"

namespace xmpi::pmi {

struct JobFacts {
  std::vector<std::vector<RankId>> slots;
  std::vector<int> appnums = {};  // by rank, 0 if absent
  int universe_size = 0;
  std::map<std::string, std::string, std::less<>> keys = {};
};

class Job {
 public:
  explicit Job(const JobFacts& facts);

  void Feed(RankId rank, std::string_view bytes);

  // The next line said to the rank, without its newline; empty if there is none.
  std::string Take(RankId rank);

  Server& ServerOf(RankId rank) { return *servers_[slot_of_rank_[rank]]; }
  const std::vector<SlotId>& slot_of_rank() const { return slot_of_rank_; }
  Hub& hub() { return hub_; }

  std::map<RankId, std::deque<std::string>> said;
  std::vector<FenceId> opened;
  std::vector<Aborted> aborts;
  std::vector<RankId> finalized;
  std::vector<std::string> errors;

 private:
  void Perform(SlotId slot, const Actions& actions);
  void Do(SlotId slot, const Reply& reply);
  void Do(SlotId slot, const FenceIn& fence);
  void Do(SlotId slot, const Aborted& aborted);
  void Do(SlotId slot, const Finalized& finalized);
  void Do(SlotId slot, const Publish& publish);
  void Do(SlotId slot, const Unpublish& unpublish);
  void Do(SlotId slot, const Lookup& lookup);
  void Do(SlotId slot, const ProtocolError& error);

  std::vector<SlotId> slot_of_rank_;
  std::vector<std::unique_ptr<Server>> servers_;
  Hub hub_;
};

}  // namespace xmpi::pmi
