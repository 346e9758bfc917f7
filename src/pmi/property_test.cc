// Properties of the engines under any split of the input and any order of the ranks.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <format>
#include <string>
#include <vector>

#include "pmi/testing.h"

namespace xmpi::pmi {
namespace {

SlotFacts OneRank() {
  return {.ranks = {{0}},
          .universe_size = 1,
          .mapping = "(vector,(0,1,1))",
          .keys = {},
          .kvs_prefix = "kvs"};
}

// Whole commands mostly, with pieces of them and noise in between.
rc::Gen<std::string> Words() {
  return rc::gen::map(
      rc::gen::container<std::vector<std::string>>(rc::gen::weightedOneOf<std::string>(
          {{12, rc::gen::element<std::string>(
                    "cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=get_maxes\n",
                    "cmd=put key=a value=b c\n", "cmd=get key=a\n", "cmd=get key=z\n",
                    "cmd=abort exitcode=3 message=x y\n", "cmd=finalize\n",
                    "mcmd=spawn\nexecname=a\nendcmd\n", "cmd=lookup_name service=s\n")},
           {1, rc::gen::element<std::string>("cmd=", "\n", "mcmd=spawn\n", "endcmd\n", "xyz",
                                             std::string(9000, 'x'))}})),
      [](const std::vector<std::string>& parts) {
        std::string all = "cmd=init pmi_version=1 pmi_subversion=1\n";
        for (const std::string& part : parts) all += part;
        return all;
      });
}

// Lookups are answered at once, so that the rank can go on.
void FeedOne(Server& server, std::string_view bytes, Actions& all) {
  for (Action& action : server.Feed(0, bytes)) all.push_back(std::move(action));
}

RC_GTEST_PROP(Server, AnySplitOfTheBytesGivesTheSameActions, ()) {
  const std::string words = *Words();
  Server whole(OneRank()), split(OneRank());
  Actions at_once, piecewise;
  FeedOne(whole, words, at_once);
  for (std::string_view rest = words; !rest.empty();) {
    const auto piece =
        *rc::gen::inRange<std::size_t>(1, std::min<std::size_t>(rest.size(), 40) + 1);
    FeedOne(split, rest.substr(0, piece), piecewise);
    rest.remove_prefix(piece);
  }
  RC_ASSERT(at_once == piecewise);
}

// A model of one rank: it does `fences[g]` fences in generation g, a put before each.
struct Walker {
  RankId rank = 0;
  std::size_t generation = 0;
  std::uint32_t fences = 0;
  bool waiting = false;
  bool done = false;
};

class Walk {
 public:
  Walk(std::vector<std::vector<RankId>> slots, std::vector<std::uint32_t> fences)
      : job_(JobFacts{.slots = std::move(slots)}), fences_(std::move(fences)) {
    for (RankId rank = 0; rank < job_.slot_of_rank().size(); ++rank) {
      walkers_.push_back({rank});
      Say(rank, "cmd=init pmi_version=1 pmi_subversion=1");
      job_.Take(rank);
    }
  }

  bool Done() const {
    return std::ranges::all_of(walkers_, [](const Walker& w) { return w.done; });
  }

  // One rank that can, does its next step; checks that fences open exactly when all are in.
  void Step() {
    std::vector<Walker*> able;
    for (Walker& walker : walkers_) {
      if (!walker.waiting && !walker.done) able.push_back(&walker);
    }
    RC_ASSERT(!able.empty());
    Walker& walker = *able[*rc::gen::inRange<std::size_t>(0, able.size())];
    if (walker.fences == fences_[walker.generation]) return NextGeneration(walker);
    Enter(walker);
  }

 private:
  void Say(RankId rank, const std::string& line) { job_.Feed(rank, line + "\n"); }

  void NextGeneration(Walker& walker) {
    if (++walker.generation == fences_.size()) {
      walker.done = true;
      return;
    }
    walker.fences = 0;
    Say(walker.rank, "cmd=init pmi_version=1 pmi_subversion=1");
    RC_ASSERT(job_.Take(walker.rank).starts_with("cmd=response_to_init rc=0"));
  }

  void Enter(Walker& walker) {
    ++walker.fences;
    Say(walker.rank,
        std::format("cmd=put key=r{}-{} value=g{}", walker.rank, walker.fences, walker.generation));
    RC_ASSERT(job_.Take(walker.rank) == "cmd=put_result rc=0");
    walker.waiting = true;
    const std::size_t opened_before = job_.opened.size();
    Say(walker.rank, "cmd=barrier_in");
    const bool complete = std::ranges::all_of(walkers_, [&](const Walker& w) {
      return w.waiting && w.generation == walker.generation && w.fences == walker.fences;
    });
    RC_ASSERT((job_.opened.size() == opened_before + 1) == complete);
    if (complete) Leave(walker.fences, walker.generation);
  }

  void Leave(std::uint32_t n, std::size_t generation) {
    for (Walker& walker : walkers_) {
      walker.waiting = false;
      RC_ASSERT(job_.Take(walker.rank) == "cmd=barrier_out");
      for (const Walker& other : walkers_) {
        Say(walker.rank, std::format("cmd=get key=r{}-{}", other.rank, n));
        RC_ASSERT(job_.Take(walker.rank) ==
                  std::format("cmd=get_result rc=0 value=g{} found=TRUE", generation));
      }
      RC_ASSERT(job_.ServerOf(walker.rank).live_generations() <= 2u);
    }
    RC_ASSERT(job_.errors.empty());
  }

  Job job_;
  std::vector<std::uint32_t> fences_;
  std::vector<Walker> walkers_;
};

RC_GTEST_PROP(Job, FencesOpenExactlyWhenAllAreInAndShowAllPuts, ()) {
  std::vector<std::vector<RankId>> slots;
  RankId next = 0;
  const int slot_count = *rc::gen::inRange(1, 4);
  for (int slot = 0; slot < slot_count; ++slot) {
    slots.emplace_back();
    const int ranks = *rc::gen::inRange(1, 4);
    for (int i = 0; i < ranks; ++i) slots.back().push_back(next++);
  }
  const auto fences = *rc::gen::nonEmpty(
      rc::gen::container<std::vector<std::uint32_t>>(rc::gen::inRange<std::uint32_t>(1, 4)));
  Walk walk(slots, fences);
  while (!walk.Done()) walk.Step();
}

}  // namespace
}  // namespace xmpi::pmi
