#include "ctl/show.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace xmpi::ctl {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

Json Status() {
  return Json::parse(
      R"({"job":"heat-7","stage":"running","ranks":3,"spares":["node3"],"migrations":1,
    "slots":[{"slot":0,"node":"node1","epoch":1,"proxy":"0.0.0","ranks":[{"rank":0,"pid":11,"exited":false}]},
             {"slot":1,"node":"node2","epoch":2,"proxy":"1.1.1","ranks":[{"rank":1,"pid":12,"exited":false},
                                                                         {"rank":2,"pid":13,"exited":true}]}],
    "migration":{"migration":2,"phase":"dump","step":"dump","moves":[{"slot":1,"from":"node2","to":"node3"}]}})");
}

TEST(Show, Table) {
  EXPECT_EQ(Table({{"A", "BB"}, {"aaa", "b"}, {"", "x"}}), "A    BB\naaa  b\n     x\n");
}

TEST(Show, Status) {
  EXPECT_EQ(ShowStatus(Status()),
            "job heat-7: running, 3 ranks, 1 migrations so far\n\n"
            "SLOT  NODE   EPOCH  RANKS (PID)\n"
            "0     node1  1      0 (11)\n"
            "1     node2  2      1 (12), 2 (ended)\n"
            "\nspares: node3\n"
            "migration 2: slot 1 from node2 to node3, in dump (dump)\n");
}

TEST(Show, List) {
  EXPECT_EQ(ShowList({Status()}),
            "JOB     STAGE    RANKS  MIGRATIONS  NODES\n"
            "heat-7  running  3      1           node1,node2\n");
  EXPECT_THAT(ShowList({}), HasSubstr("no job"));
}

TEST(Show, ProgressOfAMove) {
  const Json status = Json::parse(R"({"job":"j","stage":"running","ranks":2,"migrations":1,
    "slots":[],"spares":[],"migration":{"migration":1,"phase":"transfer","step":"transfer",
    "moves":[{"slot":0,"from":"n1","to":"n2","progress":{"stage":"transfer","bytes_per_s":50000000,
    "ranks":[{"rank":0,"done_bytes":100000000,"total_bytes":200000000},
             {"rank":1,"done_bytes":0,"total_bytes":0}]}}]}})");
  EXPECT_THAT(ShowStatus(status), HasSubstr("  rank 0: transfer 100.0 MB of 200.0 MB (50 %)\n"
                                            "  rank 1: transfer 0 B of 0 B (100 %)\n"
                                            "  50.0 MB/s, 2.0 s to go\n"));
}

TEST(Show, Event) {
  EXPECT_EQ(ShowEvent(Json::parse(
                R"({"event":"dump.begin","migration":1,"reason":"so it is","to":"n3"})")),
            R"(dump.begin migration=1 reason="so it is" to=n3)");
}

TEST(Show, Result) {
  const Json result = Json::parse(R"({"ok":true,"from":"node2","to":"node3","phases_ms":
    {"prepare":1.5,"quiesce":2,"dump":3,"transfer":4,"restore":5,"handover":0,"reconnect":6.25},
    "downtime_ms":20.04,"move_ms":12,"image_bytes":123456789,
    "precopy_bytes":130000000,"wire_bytes":4500000,"ranks":[{"rank":4,"pid_before":11,"pid_after":22}]})");
  EXPECT_EQ(ShowResult(result),
            "PHASE      MS\n"
            "prepare    1.5\n"
            "quiesce    2.0\n"
            "dump       3.0\n"
            "transfer   4.0\n"
            "restore    5.0\n"
            "handover   0.0\n"
            "reconnect  6.2\n"
            "downtime   20.0\n"
            "move time  12.0\n"
            "images: 123.5 MB; sent 130.0 MB while the ranks ran, 4.5 MB after\n"
            "\n"
            "RANK  PID ON node2  PID ON node3\n"
            "4     11            22\n");
}

}  // namespace
}  // namespace xmpi::ctl
