// The parts of the proxy that need neither ranks nor a launcher.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <asio.hpp>
#include <functional>
#include <string>
#include <vector>

#include "base/check.h"
#include "proxy/cores.h"
#include "proxy/duplex.h"
#include "proxy/environment.h"

namespace xmpi::proxy {
namespace {

TEST(Cores, EachRankGetsItsOwnWhileThereAreAny) {
  const std::vector<CpuList> cores = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  EXPECT_EQ(ChooseCores(cores, {0, 0, 0, 0}, 3), (std::vector<CpuList>{{0, 4}, {1, 5}, {2, 6}}));
  EXPECT_EQ(ChooseCores(cores, {1, 0, 2, 0}, 3), (std::vector<CpuList>{{1, 5}, {3, 7}, {0, 4}}));
  // One that none of its own ranks has is better than one that is as busy.
  EXPECT_EQ(ChooseCores(cores, {0, 1, 9, 9}, 2), (std::vector<CpuList>{{0, 4}, {1, 5}}));
  std::vector<CpuList> shared = ChooseCores(cores, {0, 0, 0, 0}, 6);
  EXPECT_EQ(std::ranges::count(shared, CpuList{0, 4}), 2);
  EXPECT_EQ(std::ranges::count(shared, CpuList{3, 7}), 1);
}

TEST(Cores, OnlyProcessesThatAreBoundCount) {
  const std::vector<CpuList> cores = {{0, 2}, {1, 3}};
  EXPECT_EQ(LoadOf(cores, {{0, 1, 2, 3}, {0, 2}, {2}, {3}}), (std::vector<int>{2, 1}));
}

TEST(Cores, ReadsTheListsOfProc) {
  EXPECT_EQ(ParseCpuList("\t0-2,5,8-9\n"), (CpuList{0, 1, 2, 5, 8, 9}));
  EXPECT_EQ(ParseCpuList(""), CpuList{});
}

TEST(Cores, NoneBindsNothingAndAnUnknownWordIsAnError) {
  EXPECT_EQ(ChooseCoresHere("none", 2)->cpus, (std::vector<CpuList>(2)));
  EXPECT_FALSE(ChooseCoresHere("socket", 2));
  const auto chosen = ChooseCoresHere("core", 1);
  ASSERT_TRUE(chosen) << chosen.error().message;
  EXPECT_FALSE(chosen->cpus[0].empty());
}

void AddVariable(wire::RankSpec* rank, const std::string& name, const std::string& value) {
  wire::EnvironmentVariable& variable = *rank->add_environment();
  variable.set_name(name);
  variable.set_value(value);
}

TEST(Environment, OursWinTheRanksComeNextTheNodesLast) {
  wire::Launch launch;
  launch.set_size(8);
  for (const char* name : {"XMPI_TEST_NODE", "XMPI_TEST_BOTH", "XMPI_TEST_ABSENT"})
    launch.add_inherit_environment(name);
  setenv("XMPI_TEST_NODE", "of the node", 1);
  setenv("XMPI_TEST_BOTH", "of the node", 1);
  unsetenv("XMPI_TEST_ABSENT");
  wire::RankSpec& rank = *launch.add_ranks();
  rank.set_rank(5);
  AddVariable(&rank, "XMPI_TEST_BOTH", "of the rank");
  AddVariable(&rank, "EMPTY", "");
  AddVariable(&rank, "PMI_RANK", "99");
  const auto node = NodeEnvironment("eth1", "4000:4100");
  const auto environment = EnvironmentOf(
      {.launch = launch, .rank = rank, .hostname = "host5", .node = node, .local_rank = 0});
  const auto has = [&](const char* text) { return std::ranges::count(environment, text) == 1; };
  EXPECT_TRUE(has("XMPI_TEST_NODE=of the node"));
  EXPECT_TRUE(has("XMPI_TEST_BOTH=of the rank"));
  EXPECT_TRUE(has("EMPTY="));
  EXPECT_TRUE(has("PMI_RANK=5"));
  EXPECT_TRUE(has("PMI_SIZE=8"));
  EXPECT_TRUE(has("PMI_HOSTNAME=host5"));
  EXPECT_TRUE(has("UCX_NET_DEVICES=eth1"));
  EXPECT_TRUE(has("UCX_TCP_PORT_RANGE=4000-4100"));
  EXPECT_FALSE(std::ranges::any_of(
      environment, [](const std::string& each) { return each.starts_with("XMPI_TEST_ABSENT"); }));
}

TEST(Environment, AnyDeviceAndAnyPortAreNotSaid) { EXPECT_TRUE(NodeEnvironment("", "").empty()); }

// Reads a socket pair's one end through a Duplex until it ends, and gives what came.
std::vector<std::string> ReadToTheEnd(int type, const std::function<void(Fd theirs)>& peer) {
  int ends[2];
  XMPI_CHECK(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) == 0);
  asio::io_context loop;
  std::vector<std::string> read;
  const auto duplex =
      Duplex::Open(loop, Fd(ends[0]), [&](std::string_view bytes) { read.emplace_back(bytes); });
  duplex->Write("never read");
  peer(Fd(ends[1]));
  loop.run();
  return read;
}

// The kernel tells of what was left unread before it gives what was written before the end.
TEST(Duplex, LastWordsOfAPeerThatLeavesSomethingUnreadAreRead) {
  for (const int type : {SOCK_SEQPACKET, SOCK_STREAM}) {
    const auto read = ReadToTheEnd(
        type, [](Fd theirs) { EXPECT_EQ(send(theirs.get(), "last words", 10, 0), 10); });
    EXPECT_EQ(read, (std::vector<std::string>{"last words", ""}));
  }
}

}  // namespace
}  // namespace xmpi::proxy
