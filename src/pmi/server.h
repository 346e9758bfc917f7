// The proxy's side of PMI: one Server per slot speaks PMI-1 with the slot's ranks. Bytes, fences
// and results come in, a list of actions goes out; no socket, clock or thread. docs/pmi.md is the
// contract with the ranks.
//
// It owns each local rank's place in the protocol and the KVS of every generation that a local rank
// is still in. It never waits for the launcher to answer a get, never opens a fence by itself, and
// never trusts a rank: malformed input is a ProtocolError for that rank and nobody else.
//
// A rank's generation is the number of its cmd=init, so ranks may be in different ones at once. A
// generation has a KVS name of its own and is forgotten when every local rank has left it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "pmi/fence.h"
#include "pmi/kvs.h"
#include "pmi/pmi1.h"

namespace xmpi::pmi {

struct LocalRank {
  RankId rank = 0;
  int appnum = 0;             // the rank's MPMD segment
  Generation generation = 0;  // what it was in where it came from; 0 at the job's start
};

struct SlotFacts {
  std::vector<LocalRank> ranks;
  int universe_size = 0;
  std::string mapping;  // PMI_process_mapping
  std::map<std::string, std::string, std::less<>>
      keys;                // further predefined ones: PMI_hwloc_xmlfile
  std::string kvs_prefix;  // the same on all slots of the job
};

using NameRequest = std::uint64_t;  // of one Server, from 1

// Write to the rank's PMI socket.
struct Reply {
  RankId rank = 0;
  std::string bytes;
  bool operator==(const Reply&) const = default;
};
// End the job: the rank called MPI_Abort.
struct Aborted {
  RankId rank = 0;
  int code = 0;
  std::string message;
  bool operator==(const Aborted&) const = default;
};
// The rank has said goodbye: its exit is in order now.
struct Finalized {
  RankId rank = 0;
  bool operator==(const Finalized&) const = default;
};
// The three that the Hub answers, through OnNameResult.
struct Publish {
  NameRequest request = 0;
  RankId rank = 0;
  std::string name;
  std::string port;
  bool operator==(const Publish&) const = default;
};
struct Unpublish {
  NameRequest request = 0;
  RankId rank = 0;
  std::string name;
  bool operator==(const Unpublish&) const = default;
};
struct Lookup {
  NameRequest request = 0;
  RankId rank = 0;
  std::string name;
  bool operator==(const Lookup&) const = default;
};
// Close the rank's PMI socket: it does not speak PMI-1. `text` names the rank and quotes its words.
struct ProtocolError {
  RankId rank = 0;
  std::string text;
  bool operator==(const ProtocolError&) const = default;
};

using Action =
    std::variant<Reply, FenceIn, Aborted, Finalized, Publish, Unpublish, Lookup, ProtocolError>;
using Actions = std::vector<Action>;

class Server {
 public:
  explicit Server(SlotFacts facts);

  // What a local rank wrote to its PMI socket, split anywhere.
  Actions Feed(RankId rank, std::string_view bytes);

  // The Hub opened a fence. Ignored unless this slot waits in it (a replay, a stale fence).
  Actions OnFenceOut(const FenceOut& fence);

  // The Hub's answer; `port` for a lookup that found one. Ignored if the rank no longer waits for
  // it.
  Actions OnNameResult(NameRequest request, bool ok, std::string_view port = {});

  // The rank was restored with another socket: what it had half said and what it waited for is
  // gone; its generation stays.
  void OnRankReset(RankId rank);

  // PMI_process_mapping from now on.
  void SetMapping(std::string mapping) { facts_.mapping = std::move(mapping); }

  Generation GenerationOf(RankId rank) const { return At(rank).generation; }

  // Has the rank said init but not finalize? Then an exit, whatever its code, is a failure.
  bool IsOpen(RankId rank) const { return At(rank).stage == Stage::kOpen; }

  std::size_t live_generations() const { return generations_.size(); }

 private:
  friend struct Command;  // the dispatch table in server.cc

  enum class Stage { kSilent, kOpen, kFinalized };
  enum class Waiting { kNothing, kFence, kNodeBarrier, kPublish, kUnpublish, kLookup };

  struct Rank {
    RankId id = 0;
    int appnum = 0;
    Stage stage = Stage::kSilent;
    bool broken = false;  // after a ProtocolError nothing it sends counts
    Generation generation = 0;
    std::uint32_t fences = 0;  // entered in this generation
    std::uint32_t puts = 0;    // in this generation
    int subversion = 1;        // of PMI-1, as its init asked
    Waiting waiting = Waiting::kNothing;
    NameRequest request = 0;
    int barrier_tag = 0;
    MessageReader reader;
  };

  Rank& At(RankId rank);
  const Rank& At(RankId rank) const;

  Result<> Handle(Rank& rank, const Message& message, Actions& actions);
  Result<> OnInit(Rank& rank, const Fields& fields, Actions& actions);
  Result<> OnGetMaxes(Rank& rank, const Fields& fields, Actions& actions);
  Result<> OnGetAppnum(Rank& rank, const Fields& fields, Actions& actions);
  Result<> OnGetUniverseSize(Rank& rank, const Fields& fields, Actions& actions);
  Result<> OnGetMyKvsname(Rank& rank, const Fields& fields, Actions& actions);
  Result<> OnPut(Rank& rank, const Fields& fields, Actions& actions);
  Result<> OnGet(Rank& rank, const Fields& fields, Actions& actions);
  Result<> OnBarrierIn(Rank& rank, const Fields& fields, Actions& actions);
  Result<> OnPublishName(Rank& rank, const Fields& fields, Actions& actions);
  Result<> OnUnpublishName(Rank& rank, const Fields& fields, Actions& actions);
  Result<> OnLookupName(Rank& rank, const Fields& fields, Actions& actions);
  Result<> OnSpawn(Rank& rank, const Fields& fields, Actions& actions);
  Result<> OnAbort(Rank& rank, const Fields& fields, Actions& actions);
  Result<> OnFinalize(Rank& rank, const Fields& fields, Actions& actions);

  std::string KvsName(Generation generation) const;
  bool NamesKvs(const Rank& rank, const Fields& fields) const;
  std::string_view Store(Rank& rank, std::string_view key, std::string_view value);
  std::optional<std::string_view> Value(const Rank& rank, std::string_view key) const;
  FenceId FenceOf(const Rank& rank) const { return {rank.generation, rank.fences}; }
  bool AllWait(Waiting waiting) const;
  Result<> EnterFence(const Rank& last, Actions& actions);
  void LeaveBarrier(Actions& actions);
  NameRequest Ask(Rank& rank, Waiting waiting);
  void ForgetLeftGenerations();

  SlotFacts facts_;
  std::map<RankId, Rank> ranks_;
  std::map<Generation, Kvs> generations_;
  NameRequest last_request_ = 0;
};

// The commands that a rank may send, for docs/pmi.md's test.
struct CommandInfo {
  std::string_view verb;
  std::string_view reply;  // the verb of the answer, empty if there is none
};
std::vector<CommandInfo> Commands();

}  // namespace xmpi::pmi
