#include "pmi/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>

#include "pmi/limits.h"
#include "pmi/testing.h"

namespace xmpi::pmi {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::string_view kInit = "cmd=init pmi_version=1 pmi_subversion=1\n";
constexpr std::string_view kBarrier = "cmd=barrier_in\n";

class JobTest : public testing::Test {
 protected:
  JobTest() : JobTest(JobFacts{.slots = {{0, 1}, {2, 3}}, .universe_size = 9}) {}
  explicit JobTest(const JobFacts& facts) : job_(facts) {}

  std::string Ask(RankId rank, std::string_view line) {
    job_.Feed(rank, std::string(line) + "\n");
    return job_.Take(rank);
  }
  void All(std::string_view bytes) {
    for (RankId rank = 0; rank < job_.slot_of_rank().size(); ++rank) job_.Feed(rank, bytes);
  }
  // All ranks begin a generation and have read their answers.
  void InitAll() {
    All(kInit);
    Read("cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1");
  }
  void FenceAll() {
    All(kBarrier);
    Read("cmd=barrier_out");
  }
  void Read(std::string_view answer) {
    for (RankId rank = 0; rank < job_.slot_of_rank().size(); ++rank) {
      EXPECT_EQ(job_.Take(rank), answer) << "rank " << rank;
    }
  }

  Job job_;
};

TEST_F(JobTest, AnswersFactsAboutTheJob) {
  InitAll();
  EXPECT_EQ(Ask(0, "cmd=get_maxes"),
            "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024");
  EXPECT_EQ(Ask(0, "cmd=get_universe_size"), "cmd=universe_size rc=0 size=9");
  EXPECT_EQ(Ask(0, "cmd=get_appnum"), "cmd=appnum rc=0 appnum=0");
  EXPECT_EQ(Ask(3, "cmd=get_my_kvsname"), "cmd=my_kvsname rc=0 kvsname=kvs_test_1");
  EXPECT_EQ(Ask(3, "cmd=get kvsname=kvs_test_1 key=PMI_process_mapping"),
            "cmd=get_result rc=0 value=(vector,(0,2,2)) found=TRUE");
}

TEST_F(JobTest, ANewMappingIsAnsweredFromThenOn) {
  InitAll();
  job_.ServerOf(0).SetMapping("(vector,(0,1,4))");
  EXPECT_THAT(Ask(0, "cmd=get key=PMI_process_mapping"), HasSubstr("(vector,(0,1,4))"));
}

TEST_F(JobTest, APutIsSeenEverywhereAfterTheFence) {
  InitAll();
  EXPECT_EQ(Ask(0, "cmd=put kvsname=kvs_test_1 key=a value=one two"), "cmd=put_result rc=0");
  EXPECT_EQ(Ask(1, "cmd=get kvsname=kvs_test_1 key=a"),
            "cmd=get_result rc=0 value=one two found=TRUE")
      << "the slot's own puts are there at once";
  EXPECT_EQ(Ask(2, "cmd=get kvsname=kvs_test_1 key=a"), "cmd=get_result rc=1");
  FenceAll();
  for (const RankId rank : {0, 1, 2, 3}) {
    EXPECT_EQ(Ask(rank, "cmd=get kvsname=kvs_test_1 key=a"),
              "cmd=get_result rc=0 value=one two found=TRUE");
  }
}

TEST_F(JobTest, TheNewValueOfAKeyWins) {
  InitAll();
  Ask(0, "cmd=put key=a value=1");
  Ask(0, "cmd=put key=a value=2");
  FenceAll();
  EXPECT_THAT(Ask(2, "cmd=get key=a"), HasSubstr("value=2 "));
  Ask(0, "cmd=put key=a value=3");
  EXPECT_THAT(Ask(2, "cmd=get key=a"), HasSubstr("value=2 "));
  FenceAll();
  EXPECT_THAT(Ask(2, "cmd=get key=a"), HasSubstr("value=3 "));
}

TEST_F(JobTest, SlotsAgreeOnAKeyThatTwoOfThemPut) {
  InitAll();
  Ask(3, "cmd=put key=a value=from3");
  Ask(0, "cmd=put key=a value=from0");
  FenceAll();
  EXPECT_EQ(Ask(0, "cmd=get key=a"), Ask(3, "cmd=get key=a"));
}

TEST_F(JobTest, AFenceWaitsForTheLastRank) {
  InitAll();
  for (const RankId rank : {3, 1, 0}) job_.Feed(rank, kBarrier);
  for (const RankId rank : {0, 1, 3}) EXPECT_EQ(job_.Take(rank), "");
  job_.Feed(2, kBarrier);
  Read("cmd=barrier_out");
  EXPECT_THAT(job_.opened, ElementsAre(FenceId{1, 1}));
}

TEST_F(JobTest, FencesAreCountedWithinTheirGeneration) {
  InitAll();
  FenceAll();
  FenceAll();
  InitAll();
  FenceAll();
  EXPECT_THAT(job_.opened, ElementsAre(FenceId{1, 1}, FenceId{1, 2}, FenceId{2, 1}));
}

TEST_F(JobTest, EachGenerationHasAFreshKvs) {
  InitAll();
  Ask(0, "cmd=put key=a value=1");
  FenceAll();
  InitAll();
  EXPECT_EQ(Ask(1, "cmd=get_my_kvsname"), "cmd=my_kvsname rc=0 kvsname=kvs_test_2");
  EXPECT_EQ(Ask(1, "cmd=get kvsname=kvs_test_2 key=a"), "cmd=get_result rc=1");
  EXPECT_EQ(Ask(1, "cmd=get kvsname=kvs_test_1 key=a"), "cmd=get_result rc=1 msg=unknown_kvsname");
  EXPECT_EQ(Ask(1, "cmd=put kvsname=kvs_test_1 key=a value=1"),
            "cmd=put_result rc=1 msg=unknown_kvsname");
}

TEST_F(JobTest, RanksOfASlotMayBeInTwoGenerations) {
  InitAll();
  Ask(0, "cmd=put key=a value=old");
  FenceAll();
  Ask(0, kInit.substr(0, kInit.size() - 1));
  Ask(0, "cmd=put key=a value=new");
  job_.Feed(0, kBarrier);
  EXPECT_EQ(job_.ServerOf(0).GenerationOf(0), 2u);
  EXPECT_EQ(job_.ServerOf(0).GenerationOf(1), 1u);
  EXPECT_EQ(job_.ServerOf(0).live_generations(), 2u);
  EXPECT_THAT(Ask(1, "cmd=get key=a"), HasSubstr("value=old "));
  for (const RankId rank : {1, 2, 3}) {
    EXPECT_EQ(job_.Take(0), "") << "the fence must not open before all are in its generation";
    job_.Feed(rank, kInit);
    job_.Take(rank);
    job_.Feed(rank, kBarrier);
  }
  Read("cmd=barrier_out");
  EXPECT_THAT(Ask(1, "cmd=get key=a"), HasSubstr("value=new "));
  EXPECT_EQ(job_.ServerOf(0).live_generations(), 1u);
}

TEST_F(JobTest, StateDoesNotGrowWithGenerations) {
  for (int cycle = 0; cycle < 100; ++cycle) {
    InitAll();
    Ask(0, "cmd=put key=a value=1");
    FenceAll();
    EXPECT_EQ(job_.ServerOf(0).live_generations(), 1u);
    EXPECT_EQ(job_.ServerOf(2).live_generations(), 1u);
  }
  EXPECT_EQ(job_.ServerOf(0).GenerationOf(0), 100u);
}

TEST_F(JobTest, FinalizeLeavesTheLastGeneration) {
  InitAll();
  Ask(0, "cmd=put key=a value=1");
  FenceAll();
  EXPECT_TRUE(job_.ServerOf(0).IsOpen(0));
  All("cmd=finalize\n");
  Read("cmd=finalize_ack rc=0");
  EXPECT_THAT(job_.finalized, ElementsAre(0, 1, 2, 3));
  EXPECT_FALSE(job_.ServerOf(0).IsOpen(0));
  EXPECT_EQ(job_.ServerOf(0).live_generations(), 0u);
}

TEST_F(JobTest, ARankThatFinalizedMayInitAgain) {
  InitAll();
  All("cmd=finalize\n");
  Read("cmd=finalize_ack rc=0");
  InitAll();
  EXPECT_EQ(Ask(2, "cmd=get_my_kvsname"), "cmd=my_kvsname rc=0 kvsname=kvs_test_2");
  FenceAll();
}

TEST_F(JobTest, PutsBeyondTheLimitsAreRefusedAndTheRankGoesOn) {
  InitAll();
  const std::string key(kMaxKeyBytes - 1, 'k'), value(kMaxValueBytes - 1, 'v');
  EXPECT_EQ(Ask(0, "cmd=put key=" + key + " value=" + value), "cmd=put_result rc=0");
  EXPECT_EQ(Ask(0, "cmd=put key=" + key + "k value=v"), "cmd=put_result rc=1 msg=key_too_long");
  EXPECT_EQ(Ask(0, "cmd=put key=k value=" + value + "v"), "cmd=put_result rc=1 msg=value_too_long");
  EXPECT_EQ(Ask(0, "cmd=put key=PMI_process_mapping value=x"),
            "cmd=put_result rc=1 msg=keys_with_PMI_are_reserved");
  for (std::uint32_t i = 1; i < kMaxPutsPerRank; ++i) {
    ASSERT_EQ(Ask(0, "cmd=put key=k value=v"), "cmd=put_result rc=0");
  }
  EXPECT_EQ(Ask(0, "cmd=put key=k value=v"), "cmd=put_result rc=1 msg=too_many_puts");
  FenceAll();
}

TEST_F(JobTest, ARankCannotRunAheadForEver) {
  InitAll();
  std::string last;
  for (std::size_t i = 0; i < kMaxLiveGenerations + 5; ++i) {
    last = Ask(0, "cmd=put key=k value=v");
    Ask(0, kInit.substr(0, kInit.size() - 1));
  }
  EXPECT_EQ(last, "cmd=put_result rc=1 msg=too_far_ahead_of_the_other_ranks");
  EXPECT_LE(job_.ServerOf(0).live_generations(), kMaxLiveGenerations);
}

TEST_F(JobTest, NamesGoThroughTheHub) {
  InitAll();
  EXPECT_EQ(Ask(3, "cmd=lookup_name service=ocean"), "cmd=lookup_result rc=1");
  EXPECT_EQ(Ask(0, "cmd=publish_name service=ocean port=a b"), "cmd=publish_result rc=0");
  EXPECT_EQ(Ask(2, "cmd=publish_name service=ocean port=c"), "cmd=publish_result rc=1");
  EXPECT_EQ(Ask(3, "cmd=lookup_name service=ocean"), "cmd=lookup_result rc=0 port=a b");
  EXPECT_EQ(Ask(3, "cmd=unpublish_name service=ocean"), "cmd=unpublish_result rc=0");
  EXPECT_EQ(Ask(3, "cmd=unpublish_name service=ocean"), "cmd=unpublish_result rc=1");
  EXPECT_THAT(Ask(0, "cmd=publish_name service=ocean port=" + std::string(300, 'p')),
              HasSubstr("publish_result rc=1"));
}

TEST_F(JobTest, SpawnIsRefusedOnceAfterItsLastBlock) {
  InitAll();
  const std::string first =
      "mcmd=spawn\nnprocs=1\nexecname=a\ntotspawns=2\nspawnssofar=1\nendcmd\n";
  const std::string second =
      "mcmd=spawn\nnprocs=1\nexecname=b\ntotspawns=2\nspawnssofar=2\nendcmd\n";
  job_.Feed(0, first);
  EXPECT_EQ(job_.Take(0), "");
  job_.Feed(0, second);
  EXPECT_EQ(job_.Take(0), "cmd=spawn_result rc=1 msg=spawn_is_not_supported");
  job_.Feed(0, "mcmd=spawn\nexecname=c\nendcmd\n");
  EXPECT_EQ(job_.Take(0), "cmd=spawn_result rc=1 msg=spawn_is_not_supported");
}

TEST_F(JobTest, AbortCountsAtAnyTime) {
  job_.Feed(0, "cmd=abort\n");
  InitAll();
  job_.Feed(1, kBarrier);
  job_.Feed(1, "cmd=abort exitcode=7 message=no more fuel\n");
  EXPECT_EQ(job_.aborts, (std::vector<Aborted>{{0, 1, ""}, {1, 7, "no more fuel"}}));
  EXPECT_THAT(job_.errors, IsEmpty());
}

TEST_F(JobTest, OnlyPmi1IsSpoken) {
  EXPECT_THAT(Ask(0, "cmd=init pmi_version=2 pmi_subversion=0"),
              HasSubstr("response_to_init rc=1 pmi_version=1"));
  EXPECT_EQ(job_.ServerOf(0).GenerationOf(0), 0u);
  InitAll();
}

TEST_F(JobTest, Pmi12GetsItsTagsAndNodeBarriers) {
  for (const RankId rank : {0, 1, 2, 3}) {
    EXPECT_EQ(Ask(rank, "cmd=init pmi_version=1 pmi_subversion=2"),
              "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2");
  }
  All(kBarrier);
  Read("cmd=barrier_out tag=0");
  All("cmd=barrier_in group=WORLD:3\n");
  Read("cmd=barrier_out tag=3");
  job_.Feed(0, "cmd=barrier_in group=NODE:1\n");
  EXPECT_EQ(job_.Take(0), "");
  job_.Feed(1, "cmd=barrier_in group=NODE:1\n");
  EXPECT_EQ(job_.Take(0), "cmd=barrier_out tag=1");
  EXPECT_EQ(job_.Take(1), "cmd=barrier_out tag=1");
  EXPECT_EQ(job_.opened.size(), 2u) << "a node's barrier is no fence";
  EXPECT_THAT(Ask(0, "cmd=barrier_in group=0,2"), HasSubstr("barrier_out rc=1"));
}

struct BadWords {
  std::string_view name, before, words, says;
};
class MalformedTest : public testing::TestWithParam<BadWords> {};

TEST_P(MalformedTest, ClosesTheRankAndNamesItAndItsWords) {
  Job job({.slots = {{0, 1}}});
  job.Feed(1, GetParam().before);
  ASSERT_THAT(job.errors, IsEmpty());
  job.Feed(1, GetParam().words);
  ASSERT_EQ(job.errors.size(), 1u);
  EXPECT_THAT(job.errors[0], testing::StartsWith("rank 1: PMI: \""));
  EXPECT_THAT(job.errors[0], HasSubstr(GetParam().says));
  job.said.clear();
  job.Feed(1, "cmd=get_maxes\n");
  EXPECT_TRUE(job.said[1].empty()) << "nothing it sends counts any more";
  job.Feed(0, kInit);
  EXPECT_FALSE(job.said[0].empty()) << "the other rank is as before";
}

INSTANTIATE_TEST_SUITE_P(
    Server, MalformedTest,
    testing::ValuesIn(std::vector<BadWords>{
        {"Garbage", "", "GET / HTTP/1.1\n", "GET / HTTP/1.1\": does not begin with cmd="},
        {"EmptyLine", "", "\n", "does not begin with cmd="},
        {"UnknownCommand", kInit, "cmd=initack pmiid=1\n", "unknown command"},
        {"BeforeInit", "", "cmd=get_maxes\n", "get_maxes\": before init"},
        {"AfterFinalize", "cmd=init pmi_version=1 pmi_subversion=1\ncmd=finalize\n",
         "cmd=barrier_in\n", "after finalize"},
        {"NoKey", kInit, "cmd=get kvsname=k\n", "no key="},
        {"NoValue", kInit, "cmd=put key=k\n", "no value="},
        {"NoVersion", "", "cmd=init\n", "no pmi_version="},
        {"BadNumber", "", "cmd=init pmi_version=one pmi_subversion=1\n", "is not a number"},
        {"InsideAFence", "cmd=init pmi_version=1 pmi_subversion=1\ncmd=barrier_in\n",
         "cmd=put key=a value=b\n", "before the reply"},
        {"InitInsideAFence", "cmd=init pmi_version=1 pmi_subversion=1\ncmd=barrier_in\n",
         "cmd=init pmi_version=1 pmi_subversion=1\n", "before the reply"},
        {"SpawnAsALine", kInit, "cmd=spawn execname=a\n", "wrong framing"},
        {"PutAsABlock", kInit, "mcmd=put\nkey=a\nvalue=b\nendcmd\n", "wrong framing"},
    }),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Server, SaysWhenItsRanksWaitForEver) {
  Job job({.slots = {{0, 1}}});
  for (const RankId rank : {0, 1}) job.Feed(rank, kInit);
  job.Feed(0, kInit);
  job.Feed(0, kBarrier);
  job.Feed(1, kBarrier);
  ASSERT_EQ(job.errors.size(), 1u);
  EXPECT_THAT(job.errors[0], HasSubstr("rank 1"));
  EXPECT_THAT(job.errors[0], HasSubstr("rank 0 is in fence 1 of generation 2"));
}

class ServerTest : public testing::Test {
 protected:
  static SlotFacts Facts(Generation generation) {
    return {.ranks = {{4, 0, generation}, {5, 0, generation}},
            .universe_size = 0,
            .mapping = "(vector,(0,1,6))",
            .keys = {},
            .kvs_prefix = "kvs"};
  }
  static Actions FeedBoth(Server& server, std::string_view bytes) {
    Actions actions = server.Feed(4, bytes);
    for (Action& action : server.Feed(5, bytes)) actions.push_back(std::move(action));
    return actions;
  }
};

TEST_F(ServerTest, PutsOfAllLocalRanksTravelInOneFence) {
  Server server(Facts(0));
  FeedBoth(server, kInit);
  server.Feed(5, "cmd=put key=b value=2\n");
  server.Feed(4, "cmd=put key=a value=1\n");
  EXPECT_THAT(FeedBoth(server, kBarrier),
              ElementsAre(Action(FenceIn{{1, 1}, {{"a", "1"}, {"b", "2"}}})));
  EXPECT_THAT(
      server.OnFenceOut({{1, 1}, {{"a", "1"}, {"b", "2"}, {"c", "3"}}}),
      ElementsAre(Action(Reply{4, "cmd=barrier_out\n"}), Action(Reply{5, "cmd=barrier_out\n"})));
  EXPECT_THAT(FeedBoth(server, kBarrier), ElementsAre(Action(FenceIn{{1, 2}, {}})))
      << "what travelled once does not travel again";
}

TEST_F(ServerTest, AFenceThatIsNotAwaitedIsIgnored) {
  Server server(Facts(0));
  FeedBoth(server, kInit);
  EXPECT_THAT(server.OnFenceOut({{1, 1}, {}}), IsEmpty()) << "nobody is in";
  server.Feed(4, kBarrier);
  EXPECT_THAT(server.OnFenceOut({{1, 1}, {}}), IsEmpty()) << "not all are in";
  server.Feed(5, kBarrier);
  EXPECT_THAT(server.OnFenceOut({{1, 2}, {}}), IsEmpty()) << "in another one";
  EXPECT_EQ(server.OnFenceOut({{1, 1}, {}}).size(), 2u);
  EXPECT_THAT(server.OnFenceOut({{1, 1}, {}}), IsEmpty()) << "a replay";
}

TEST_F(ServerTest, ACandidateGoesOnFromTheSourcesGenerations) {
  Server server(Facts(3));
  EXPECT_TRUE(server.IsOpen(4));
  FeedBoth(server, kInit);
  EXPECT_EQ(server.GenerationOf(5), 4u);
  EXPECT_THAT(server.Feed(4, "cmd=get_my_kvsname\n"),
              ElementsAre(Action(Reply{4, "cmd=my_kvsname rc=0 kvsname=kvs_4\n"})));
  EXPECT_THAT(FeedBoth(server, kBarrier), ElementsAre(Action(FenceIn{{4, 1}, {}})));
}

TEST_F(ServerTest, ResetDropsHalfALineAndKeepsTheGeneration) {
  Server server(Facts(0));
  FeedBoth(server, kInit);
  server.Feed(4, "cmd=get_ma");
  server.OnRankReset(4);
  EXPECT_EQ(server.GenerationOf(4), 1u);
  EXPECT_EQ(server.Feed(4, "cmd=get_maxes\n").size(), 1u);
}

TEST_F(ServerTest, ResetTakesTheRankOutOfItsFence) {
  Server server(Facts(0));
  FeedBoth(server, kInit);
  FeedBoth(server, kBarrier);
  server.OnRankReset(4);
  EXPECT_THAT(server.OnFenceOut({{1, 1}, {}}), IsEmpty());
  EXPECT_THAT(server.Feed(4, kBarrier), ElementsAre(Action(FenceIn{{1, 1}, {}})));
}

TEST_F(ServerTest, ResetMakesABrokenRankListenAgain) {
  Server server(Facts(0));
  server.Feed(4, "nonsense\n");
  EXPECT_THAT(server.Feed(4, kInit), IsEmpty());
  server.OnRankReset(4);
  EXPECT_EQ(server.Feed(4, kInit).size(), 1u);
}

TEST_F(ServerTest, AnAnswerNobodyWaitsForIsIgnored) {
  Server server(Facts(0));
  FeedBoth(server, kInit);
  EXPECT_THAT(server.Feed(4, "cmd=lookup_name service=s\n"),
              ElementsAre(Action(Lookup{1, 4, "s"})));
  EXPECT_THAT(server.OnNameResult(0, true), IsEmpty());
  EXPECT_THAT(server.OnNameResult(2, true), IsEmpty());
  server.OnRankReset(4);
  EXPECT_THAT(server.OnNameResult(1, true, "p"), IsEmpty());
  EXPECT_THAT(server.Feed(4, "cmd=lookup_name service=s\n"),
              ElementsAre(Action(Lookup{2, 4, "s"})));
  EXPECT_THAT(server.OnNameResult(2, true, "p"),
              ElementsAre(Action(Reply{4, "cmd=lookup_result rc=0 port=p\n"})));
}

// The table of commands in docs/pmi.md is the dispatch table's, no more and no less.
TEST(Docs, CommandTableIsTheCodes) {
  std::ifstream doc(XMPI_PMI_DOC);
  ASSERT_TRUE(doc);
  const std::regex row(R"(^\| `([a-z_]+)` \| (?:`([a-z_]+)`|-) \|.*)");
  std::vector<std::string> in_doc, in_code;
  std::smatch match;
  for (std::string line; std::getline(doc, line);) {
    if (std::regex_match(line, match, row)) in_doc.push_back(match.str(1) + " " + match.str(2));
  }
  for (const CommandInfo& info : Commands()) {
    in_code.push_back(std::string(info.verb) + " " + std::string(info.reply));
  }
  EXPECT_EQ(in_doc, in_code);
}

}  // namespace
}  // namespace xmpi::pmi
