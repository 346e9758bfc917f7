// The sockets that ranks will have closed when they are parked, as their libxmpi lists them
// (wire/rank_link.h): MPI's own, and those of registered callbacks. What the program's own are
// follows from it. Trusts nothing in the lists: a word that is none of the format is ignored. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "preflight/sockets.h"

namespace xmpi::preflight {

class ClosingSockets {
 public:
  void Add(RankId rank, const std::string& list);

  // The process that the rank's list is of, in its PID namespace; 0: there is no list.
  std::uint32_t ProcessOf(RankId rank) const;
  // It is listed, was accepted on a listed one, or leads to a listed one of any rank.
  bool Has(RankId rank, std::uint64_t inode, const SocketFacts& socket) const;

 private:
  struct List {
    std::uint32_t process = 0;
    std::set<std::uint64_t> inodes{};
    std::set<std::string> listening{};
  };
  std::map<RankId, List> lists_;
  std::set<std::string> listening_;  // of all ranks
};

}  // namespace xmpi::preflight
