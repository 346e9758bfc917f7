#include "pmi/server.h"

#include <algorithm>
#include <charconv>
#include <format>
#include <utility>

#include "base/check.h"
#include "pmi/limits.h"

namespace xmpi::pmi {

struct Command {
  using Handler = Result<> (Server::*)(Server::Rank&, const Fields&, Actions&);
  enum When {
    kOpen,   // between init and finalize, and not while the rank waits for a reply
    kFirst,  // init: not while the rank waits, else at any time
    kEver,   // abort: another thread of the rank may send it while the first one waits
  };
  CommandInfo info;
  When when;
  std::string_view text_field;  // takes the rest of its line
  bool multiline;
  Handler handler;

  static const Command* Find(std::string_view verb);
  static const Command kAll[];
};

constexpr Command Command::kAll[] = {
    {{"init", "response_to_init"}, kFirst, "", false, &Server::OnInit},
    {{"get_maxes", "maxes"}, kOpen, "", false, &Server::OnGetMaxes},
    {{"get_appnum", "appnum"}, kOpen, "", false, &Server::OnGetAppnum},
    {{"get_universe_size", "universe_size"}, kOpen, "", false, &Server::OnGetUniverseSize},
    {{"get_my_kvsname", "my_kvsname"}, kOpen, "", false, &Server::OnGetMyKvsname},
    {{"put", "put_result"}, kOpen, "value", false, &Server::OnPut},
    {{"get", "get_result"}, kOpen, "", false, &Server::OnGet},
    {{"barrier_in", "barrier_out"}, kOpen, "", false, &Server::OnBarrierIn},
    {{"publish_name", "publish_result"}, kOpen, "port", false, &Server::OnPublishName},
    {{"unpublish_name", "unpublish_result"}, kOpen, "", false, &Server::OnUnpublishName},
    {{"lookup_name", "lookup_result"}, kOpen, "", false, &Server::OnLookupName},
    {{"spawn", "spawn_result"}, kOpen, "", true, &Server::OnSpawn},
    {{"abort", ""}, kEver, "message", false, &Server::OnAbort},
    {{"finalize", "finalize_ack"}, kOpen, "", false, &Server::OnFinalize},
};

const Command* Command::Find(std::string_view verb) {
  const auto found = std::ranges::find_if(kAll, [&](auto& c) { return c.info.verb == verb; });
  return found == std::end(kAll) ? nullptr : &*found;
}

std::vector<CommandInfo> Commands() {
  std::vector<CommandInfo> infos;
  for (const Command& command : Command::kAll) infos.push_back(command.info);
  return infos;
}

namespace {

// `line` is what follows "cmd=". A reason in it is one word: clients split at spaces.
template <class... Args>
void Answer(RankId rank, Actions& actions, std::format_string<Args...> line, Args&&... args) {
  actions.push_back(
      Reply{rank, std::format("cmd={}\n", std::format(line, std::forward<Args>(args)...))});
}

std::unexpected<Error> Broken(std::string why) {
  return Fail(ErrorCode::kProtocol, std::move(why));
}

}  // namespace

Server::Server(SlotFacts facts) : facts_(std::move(facts)) {
  XMPI_CHECK(!facts_.ranks.empty());
  for (const LocalRank& local : facts_.ranks) {
    Rank& rank = ranks_[local.rank];
    rank.id = local.rank;
    rank.appnum = local.appnum;
    rank.generation = local.generation;
    rank.stage = local.generation == 0 ? Stage::kSilent : Stage::kOpen;
  }
  XMPI_CHECK(ranks_.size() == facts_.ranks.size());
}

Server::Rank& Server::At(RankId rank) {
  const auto found = ranks_.find(rank);
  XMPI_CHECK(found != ranks_.end());
  return found->second;
}

const Server::Rank& Server::At(RankId rank) const { return const_cast<Server*>(this)->At(rank); }

Actions Server::Feed(RankId id, std::string_view bytes) {
  Actions actions;
  Rank& rank = At(id);
  if (rank.broken) return actions;
  rank.reader.Append(bytes);
  while (true) {
    const Result<std::optional<Message>> message = rank.reader.Next();
    if (message && !*message) return actions;
    const Result<> handled =
        message ? Handle(rank, **message, actions) : Result<>(std::unexpected(message.error()));
    if (!handled) {
      rank.broken = true;
      rank.reader.Clear();
      actions.push_back(
          ProtocolError{id, std::format("rank {}: PMI: {}", id, handled.error().message)});
      return actions;
    }
  }
}

Result<> Server::Handle(Rank& rank, const Message& message, Actions& actions) {
  XMPI_ASSIGN_OR_RETURN(const std::string_view verb, VerbOf(message));
  const auto broken = [&](std::string_view why) {
    return Broken(std::format("{}: {}", Quoted(message.text), why));
  };
  const Command* command = Command::Find(verb);
  if (command == nullptr) return broken("unknown command");
  if (command->multiline != message.multiline) return broken("wrong framing for this command");
  if (command->when == Command::kOpen && rank.stage != Stage::kOpen) {
    return broken(rank.stage == Stage::kSilent ? "before init" : "after finalize");
  }
  if (command->when != Command::kEver && rank.waiting != Waiting::kNothing) {
    return broken("before the reply to the command before it");
  }
  XMPI_ASSIGN_OR_RETURN(const Fields fields, Fields::Parse(message, command->text_field));
  if (const Result<> done = (this->*command->handler)(rank, fields, actions); !done) {
    return broken(done.error().message);
  }
  return {};
}

Result<> Server::OnInit(Rank& rank, const Fields& fields, Actions& actions) {
  XMPI_ASSIGN_OR_RETURN(const int version, fields.NeedInt("pmi_version"));
  XMPI_ASSIGN_OR_RETURN(const int subversion, fields.NeedInt("pmi_subversion"));
  if (version != 1) {
    Answer(rank.id, actions,
           "response_to_init rc=1 pmi_version=1 pmi_subversion=1 msg=only_PMI_1_is_spoken_here");
    return {};
  }
  rank.stage = Stage::kOpen;
  rank.generation += 1;
  rank.fences = 0;
  rank.puts = 0;
  rank.subversion = std::clamp(subversion, 1, 2);
  ForgetLeftGenerations();
  Answer(rank.id, actions, "response_to_init rc=0 pmi_version=1 pmi_subversion={}",
         rank.subversion);
  return {};
}

Result<> Server::OnGetMaxes(Rank& rank, const Fields&, Actions& actions) {
  Answer(rank.id, actions, "maxes rc=0 kvsname_max={} keylen_max={} vallen_max={}",
         kMaxKvsNameBytes, kMaxKeyBytes, kMaxValueBytes);
  return {};
}

Result<> Server::OnGetAppnum(Rank& rank, const Fields&, Actions& actions) {
  Answer(rank.id, actions, "appnum rc=0 appnum={}", rank.appnum);
  return {};
}

Result<> Server::OnGetUniverseSize(Rank& rank, const Fields&, Actions& actions) {
  Answer(rank.id, actions, "universe_size rc=0 size={}", facts_.universe_size);
  return {};
}

std::string Server::KvsName(Generation generation) const {
  return std::format("{}_{}", facts_.kvs_prefix, generation);
}

bool Server::NamesKvs(const Rank& rank, const Fields& fields) const {
  const auto name = fields.Find("kvsname");  // PMI 1.2 lets a client leave it out
  return !name || *name == KvsName(rank.generation);
}

Result<> Server::OnGetMyKvsname(Rank& rank, const Fields&, Actions& actions) {
  Answer(rank.id, actions, "my_kvsname rc=0 kvsname={}", KvsName(rank.generation));
  return {};
}

// Returns why not, or nothing.
std::string_view Server::Store(Rank& rank, std::string_view key, std::string_view value) {
  if (key.size() >= kMaxKeyBytes) return "key_too_long";
  if (value.size() >= kMaxValueBytes) return "value_too_long";
  if (key.starts_with("PMI_")) return "keys_with_PMI_are_reserved";
  if (rank.puts >= kMaxPutsPerRank) return "too_many_puts";
  if (!generations_.contains(rank.generation) && generations_.size() >= kMaxLiveGenerations) {
    return "too_far_ahead_of_the_other_ranks";
  }
  ++rank.puts;
  generations_[rank.generation].Put(key, value);
  return "";
}

Result<> Server::OnPut(Rank& rank, const Fields& fields, Actions& actions) {
  XMPI_ASSIGN_OR_RETURN(const std::string_view key, fields.Need("key"));
  XMPI_ASSIGN_OR_RETURN(const std::string_view value, fields.Need("value"));
  const std::string_view refused =
      NamesKvs(rank, fields) ? Store(rank, key, value) : "unknown_kvsname";
  if (refused.empty()) {
    Answer(rank.id, actions, "put_result rc=0");
  } else {
    Answer(rank.id, actions, "put_result rc=1 msg={}", refused);
  }
  return {};
}

std::optional<std::string_view> Server::Value(const Rank& rank, std::string_view key) const {
  if (key == "PMI_process_mapping") return facts_.mapping;
  if (const auto known = facts_.keys.find(key); known != facts_.keys.end()) return known->second;
  const auto kvs = generations_.find(rank.generation);
  if (kvs == generations_.end()) return std::nullopt;
  return kvs->second.Get(key);
}

Result<> Server::OnGet(Rank& rank, const Fields& fields, Actions& actions) {
  XMPI_ASSIGN_OR_RETURN(const std::string_view key, fields.Need("key"));
  if (!NamesKvs(rank, fields)) {
    Answer(rank.id, actions, "get_result rc=1 msg=unknown_kvsname");
  } else if (const auto value = Value(rank, key)) {
    Answer(rank.id, actions, "get_result rc=0 value={} found=TRUE", *value);
  } else {
    Answer(rank.id, actions, "get_result rc=1");
  }
  return {};
}

// A 1.1 client only knows the fence of all ranks. A 1.2 client may name a group, "WORLD" or "NODE",
// with ":tag" behind it, and expects the tag in the answer.
Result<> Server::OnBarrierIn(Rank& rank, const Fields& fields, Actions& actions) {
  std::string_view group = fields.Find("group").value_or("WORLD");
  int tag = 0;
  if (const std::size_t colon = group.find(':'); colon != std::string_view::npos) {
    std::from_chars(group.data() + colon + 1, group.data() + group.size(), tag);
    group = group.substr(0, colon);
  }
  rank.barrier_tag = tag;
  if (group == "WORLD") {
    rank.fences += 1;
    rank.waiting = Waiting::kFence;
    return EnterFence(rank, actions);
  }
  if (group == "NODE") {
    rank.waiting = Waiting::kNodeBarrier;
    if (AllWait(Waiting::kNodeBarrier)) LeaveBarrier(actions);
    return {};
  }
  Answer(rank.id, actions, "barrier_out rc=1 tag={} msg=only_groups_WORLD_and_NODE", tag);
  return {};
}

bool Server::AllWait(Waiting waiting) const {
  return std::ranges::all_of(ranks_, [&](auto& r) { return r.second.waiting == waiting; });
}

// `last` has just entered. Once all wait, they must wait in the same fence: no other rank is left
// that could open an earlier one.
Result<> Server::EnterFence(const Rank& last, Actions& actions) {
  if (!AllWait(Waiting::kFence)) return {};
  const FenceId id = FenceOf(last);
  for (const auto& [other_id, other] : ranks_) {
    if (FenceOf(other) == id) continue;
    return Broken(
        std::format("would wait for ever: fence {} of generation {}, but rank {} is in fence {} of "
                    "generation {}",
                    id.n, id.generation, other_id, other.fences, other.generation));
  }
  const auto kvs = generations_.find(id.generation);
  actions.push_back(
      FenceIn{id, kvs == generations_.end() ? std::vector<Put>() : kvs->second.Pending()});
  return {};
}

Actions Server::OnFenceOut(const FenceOut& fence) {
  const bool ours = std::ranges::all_of(ranks_, [&](auto& r) {
    return r.second.waiting == Waiting::kFence && FenceOf(r.second) == fence.id;
  });
  Actions actions;
  if (!ours) return actions;
  if (!fence.puts.empty()) generations_[fence.id.generation].Publish(fence.puts);
  LeaveBarrier(actions);
  return actions;
}

void Server::LeaveBarrier(Actions& actions) {
  for (auto& [id, rank] : ranks_) {
    rank.waiting = Waiting::kNothing;
    if (rank.broken) continue;
    if (rank.subversion >= 2) {
      Answer(id, actions, "barrier_out tag={}", rank.barrier_tag);
    } else {
      Answer(id, actions, "barrier_out");
    }
  }
}

NameRequest Server::Ask(Rank& rank, Waiting waiting) {
  rank.waiting = waiting;
  rank.request = ++last_request_;
  return rank.request;
}

Result<> Server::OnPublishName(Rank& rank, const Fields& fields, Actions& actions) {
  XMPI_ASSIGN_OR_RETURN(const std::string_view name, fields.Need("service"));
  XMPI_ASSIGN_OR_RETURN(const std::string_view port, fields.Need("port"));
  if (name.size() > kMaxServiceBytes || port.size() > kMaxPortBytes) {
    Answer(rank.id, actions, "publish_result rc=1 msg=name_or_port_too_long");
    return {};
  }
  const NameRequest request = Ask(rank, Waiting::kPublish);
  actions.push_back(Publish{request, rank.id, std::string(name), std::string(port)});
  return {};
}

Result<> Server::OnUnpublishName(Rank& rank, const Fields& fields, Actions& actions) {
  XMPI_ASSIGN_OR_RETURN(const std::string_view name, fields.Need("service"));
  actions.push_back(Unpublish{Ask(rank, Waiting::kUnpublish), rank.id, std::string(name)});
  return {};
}

Result<> Server::OnLookupName(Rank& rank, const Fields& fields, Actions& actions) {
  XMPI_ASSIGN_OR_RETURN(const std::string_view name, fields.Need("service"));
  actions.push_back(Lookup{Ask(rank, Waiting::kLookup), rank.id, std::string(name)});
  return {};
}

Actions Server::OnNameResult(NameRequest request, bool ok, std::string_view port) {
  Actions actions;
  const auto asked = [&](auto& entry) { return entry.second.request == request; };
  const auto found = std::ranges::find_if(ranks_, asked);
  if (request == 0 || found == ranks_.end()) return actions;
  Rank& rank = found->second;
  const Waiting kind = std::exchange(rank.waiting, Waiting::kNothing);
  rank.request = 0;
  if (rank.broken) return actions;
  const int rc = ok ? 0 : 1;
  if (kind == Waiting::kPublish) {
    Answer(rank.id, actions, "publish_result rc={}", rc);
  } else if (kind == Waiting::kUnpublish) {
    Answer(rank.id, actions, "unpublish_result rc={}", rc);
  } else if (ok) {
    Answer(rank.id, actions, "lookup_result rc=0 port={}", port);
  } else {
    Answer(rank.id, actions, "lookup_result rc=1");
  }
  return actions;
}

// A spawn of several programs is one block each; the client waits for one answer, after the last.
Result<> Server::OnSpawn(Rank& rank, const Fields& fields, Actions& actions) {
  const bool counted = fields.Find("totspawns") && fields.Find("spawnssofar");
  if (counted) {
    XMPI_ASSIGN_OR_RETURN(const int total, fields.NeedInt("totspawns"));
    XMPI_ASSIGN_OR_RETURN(const int so_far, fields.NeedInt("spawnssofar"));
    if (so_far < total) return {};
  }
  Answer(rank.id, actions, "spawn_result rc=1 msg=spawn_is_not_supported");
  return {};
}

Result<> Server::OnAbort(Rank& rank, const Fields& fields, Actions& actions) {
  int code = 1;
  if (fields.Find("exitcode")) {
    XMPI_ASSIGN_OR_RETURN(code, fields.NeedInt("exitcode"));
  }
  actions.push_back(Aborted{rank.id, code, std::string(fields.Find("message").value_or(""))});
  return {};
}

Result<> Server::OnFinalize(Rank& rank, const Fields&, Actions& actions) {
  rank.stage = Stage::kFinalized;
  ForgetLeftGenerations();
  Answer(rank.id, actions, "finalize_ack rc=0");
  actions.push_back(Finalized{rank.id});
  return {};
}

void Server::ForgetLeftGenerations() {
  std::erase_if(generations_, [&](const auto& generation) {
    return std::ranges::all_of(ranks_, [&](auto& entry) {
      const Rank& rank = entry.second;
      return rank.generation > generation.first || rank.stage == Stage::kFinalized;
    });
  });
}

void Server::OnRankReset(RankId id) {
  Rank& rank = At(id);
  rank.reader.Clear();
  rank.broken = false;
  if (rank.waiting == Waiting::kFence) rank.fences -= 1;  // it is to enter it again
  rank.waiting = Waiting::kNothing;
  rank.request = 0;
}

}  // namespace xmpi::pmi
