// One row per kind of difference between machines, and per kind of thing a rank may hold.
#include "preflight/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "preflight/held.h"

namespace xmpi::preflight {
namespace {

using testing::HasSubstr;
using wire::Finding;
using wire::Held;

constexpr std::uint64_t kMega = 1'000'000;

wire::NodeFacts Node(const std::string& name) {
  wire::NodeFacts node;
  node.set_node(name);
  node.set_kernel("6.12.41-amd64");
  node.set_machine("x86_64");
  node.set_criu_version("4.1.1");
  node.set_namespaces(true);
  node.set_memory_room_bytes(1000 * kMega);
  node.set_memory_bound("the machine");
  node.set_time_us(1'000'000'000);
  for (const char* flag : {"sse4_2", "avx2", "avx512f", "smep"})
    node.mutable_cpu()->add_flags(flag);
  node.mutable_cpu()->set_xcr0(0xe7);
  node.mutable_cpu()->set_xsave_bytes(2696);
  return node;
}

wire::FileFacts File(const std::string& path, const std::string& build_id = "") {
  wire::FileFacts file;
  file.set_path(path);
  file.set_is_regular(true);
  file.set_size(100);
  file.set_build_id(build_id);
  return file;
}

// A source with one rank, and a target that is like it.
struct World {
  wire::SourceFacts source;
  wire::NodeFacts target = Node("there");
  Answers answers;

  World() {
    *source.mutable_node() = Node("here");
    wire::RankFacts& rank = *source.add_ranks();
    rank.set_rank(3);
    rank.set_memory_bytes(100 * kMega);
    *rank.add_mapped() = File("/lib/libc.so.6", "abc");
    *rank.add_mapped() = File("/opt/no-build-id.so");
    for (const wire::FileFacts& file : rank.mapped()) answers[file.path()] = file;
  }
  wire::RankFacts& rank() { return *source.mutable_ranks(0); }
  wire::Findings Run() const { return Compare(source, target, answers); }

  void WithoutNamespaces() {
    source.mutable_node()->set_namespaces(false);
    target.set_namespaces(false);
    target.add_lost("no PID and mount namespaces");
  }
  void UsePid(std::uint32_t number, std::uint32_t pid, const std::string& process) {
    wire::PidInUse& use = *target.add_pids_in_use();
    use.set_number(number);
    use.set_pid(pid);
    use.set_process(process);
  }
  Held& Hold(Held::Kind kind, const std::string& name) {
    Held& held = *rank().add_holds();
    held.set_kind(kind);
    held.set_pid(44);
    held.set_process("solver");
    held.set_fd(9);
    held.set_name(name);
    return held;
  }
};

void KeepOnly(wire::CpuFacts* cpu, std::initializer_list<const char*> flags) {
  cpu->clear_flags();
  for (const char* flag : flags) cpu->add_flags(flag);
}

TEST(CheckNode, TellsAPlainUserWhatRootMustDo) {
  World world;
  world.WithoutNamespaces();
  world.target.set_criu_error("it lacks privilege; run `setcap x criu` as root there");
  const wire::Findings findings = CheckNode(world.target);
  ASSERT_EQ(findings.findings_size(), 2);
  EXPECT_TRUE(Refuses(findings));
  EXPECT_THAT(Sentence(findings.findings(0)), HasSubstr("run `setcap x criu` as root there"));
  EXPECT_THAT(Sentence(findings.findings(0)), HasSubstr("do as root on there what it says"));
}

TEST(CheckNode, WhatNamespacesWouldGiveIsToldAndNotRefused) {
  World world;
  world.WithoutNamespaces();
  const wire::Findings findings = CheckNode(world.target);
  ASSERT_EQ(findings.findings_size(), 1);
  EXPECT_FALSE(Refuses(findings));
  EXPECT_THAT(Sentence(findings.findings(0)), HasSubstr("no PID and mount namespaces"));
}

TEST(Compare, AlikeIsFine) { EXPECT_EQ(World().Run().findings_size(), 0); }

struct Row {
  const char* name;
  std::function<void(World&)> change;
  const char* refused;  // in the sentence; nullptr: no finding
};

class Difference : public testing::TestWithParam<Row> {};

TEST_P(Difference, IsFoundOrIsNone) {
  World world;
  GetParam().change(world);
  const wire::Findings findings = world.Run();
  if (GetParam().refused == nullptr) {
    EXPECT_FALSE(Refuses(findings)) << findings.DebugString();
    return;
  }
  ASSERT_EQ(findings.findings_size(), 1) << findings.DebugString();
  EXPECT_TRUE(Refuses(findings));
  const Finding& finding = findings.findings(0);
  EXPECT_THAT(Sentence(finding), HasSubstr(GetParam().refused));
  EXPECT_FALSE(finding.why().empty());
  EXPECT_FALSE(finding.remedy().empty());
  EXPECT_FALSE(finding.node().empty());
}

const Row kRows[] = {
    {"kernel_patch", [](World& w) { w.target.set_kernel("6.12.9-cloud"); }, nullptr},
    {"newer_kernel", [](World& w) { w.target.set_kernel("6.18.1"); }, nullptr},
    {"older_kernel", [](World& w) { w.target.set_kernel("6.1.0"); }, "older than that of here"},
    {"other_machine", [](World& w) { w.target.set_machine("aarch64"); }, "there is aarch64"},
    {"more_cpu", [](World& w) { w.target.mutable_cpu()->add_flags("amx_tile"); }, nullptr},
    {"larger_xsave", [](World& w) { w.target.mutable_cpu()->set_xsave_bytes(11008); }, nullptr},
    {"kernels_flag",
     [](World& w) { KeepOnly(w.target.mutable_cpu(), {"sse4_2", "avx2", "avx512f"}); }, nullptr},
    {"less_cpu", [](World& w) { KeepOnly(w.target.mutable_cpu(), {"sse4_2", "avx2"}); },
     "the CPU of there lacks avx512f, which here has"},
    {"less_cpu_than_the_baseline",
     [](World& w) {
       KeepOnly(w.target.mutable_cpu(), {"sse4_2"});
       w.rank().set_cpu_baseline("x86-64-v3");
     },
     "lacks avx2, which"},
    {"less_cpu_but_baseline",
     [](World& w) {
       KeepOnly(w.target.mutable_cpu(), {"sse4_2", "avx2"});
       w.target.mutable_cpu()->set_xcr0(0x7);
       w.target.mutable_cpu()->set_xsave_bytes(832);
       w.rank().set_cpu_baseline("x86-64-v3");
     },
     nullptr},
    {"less_state",
     [](World& w) {
       w.target.mutable_cpu()->set_xcr0(0x7);
       w.target.mutable_cpu()->set_xsave_bytes(832);
     },
     "does not keep the AVX-512 registers"},
    {"smaller_xsave", [](World& w) { w.target.mutable_cpu()->set_xsave_bytes(832); }, "832"},
    {"clock_off", [](World& w) { w.target.set_time_us(1'060'000'000); }, nullptr},
    {"no_criu", [](World& w) { w.target.set_criu_error("no such file"); }, "no such file"},
    {"namespaces_on_the_source_only", [](World& w) { w.target.set_namespaces(false); },
     "the ranks have namespaces on here, and there gives them none"},
    {"namespaces_on_the_target_only",
     [](World& w) { w.source.mutable_node()->set_namespaces(false); }, nullptr},
    {"no_namespaces", [](World& w) { w.WithoutNamespaces(); }, nullptr},
    {"other_user",
     [](World& w) {
       w.WithoutNamespaces();
       w.target.set_user(1001);
     },
     "the user is 0 on here, and 1001 on there"},
    {"pid_in_use",
     [](World& w) {
       w.WithoutNamespaces();
       w.UsePid(4711, 4711, "sshd");
     },
     "on there PID 4711 is that of sshd: a rank has that number"},
    {"thread_in_use",
     [](World& w) {
       w.WithoutNamespaces();
       w.UsePid(4711, 4700, "java");
     },
     "PID 4711 is a thread, group or session of java (PID 4700)"},
    {"hidden_pid_in_use",
     [](World& w) {
       w.WithoutNamespaces();
       w.UsePid(4711, 0, "");
     },
     "PID 4711 is that of a process of another user"},
    {"pid_in_use_but_namespaces", [](World& w) { w.UsePid(4711, 4711, "sshd"); }, nullptr},
    {"other_build", [](World& w) { w.answers["/lib/libc.so.6"].set_build_id("xyz"); },
     "/lib/libc.so.6 is another build on there"},
    {"library_missing", [](World& w) { w.answers["/lib/libc.so.6"].Clear(); },
     "/lib/libc.so.6 is not on there"},
    {"nobody_asked", [](World& w) { w.answers.erase("/lib/libc.so.6"); }, "is not on there"},
    {"other_size", [](World& w) { w.answers["/opt/no-build-id.so"].set_size(99); },
     "has 99 bytes on"},
    {"little_memory_there", [](World& w) { w.target.set_memory_room_bytes(150 * kMega); },
     "there has room for 150 MB, and the move needs 200 MB"},
    {"little_memory_here",
     [](World& w) { w.source.mutable_node()->set_memory_room_bytes(50 * kMega); },
     "here has room for 50 MB, and the move needs 100 MB"},
    {"huge_pages", [](World& w) { w.Hold(Held::HUGE_PAGES, "memory").set_bytes(4 * kMega); },
     "the ranks have 4 MB in huge pages, and there has 0 bytes"},
    {"huge_pages_enough",
     [](World& w) {
       w.Hold(Held::HUGE_PAGES, "memory").set_bytes(4 * kMega);
       w.target.set_free_huge_bytes(4 * kMega);
     },
     nullptr},
    {"tcp", [](World& w) { w.Hold(Held::TCP, "TCP socket listening on 0.0.0.0:80"); },
     "solver on here holds a TCP socket listening on 0.0.0.0:80 (rank 3, PID 44, descriptor 9)"},
    {"tcp_of_mpi", [](World& w) { w.Hold(Held::TCP, "TCP").set_may_be_mpis(true); }, nullptr},
    {"inherited", [](World& w) { w.Hold(Held::INHERITED, "TCP connection a -> b"); },
     "solver on here holds MPI's TCP connection a -> b, inherited from its parent"},
    {"named_pipe", [](World& w) { w.Hold(Held::NAMED_PIPE, "/run/fifo"); }, "named pipe /run/fifo"},
    {"kernel_object", [](World& w) { w.Hold(Held::KERNEL_OBJECT, "anon_inode:[perf_event]"); },
     "holds anon_inode:[perf_event]"},
    {"device_mapping", [](World& w) { w.Hold(Held::DEVICE_MAPPING, "/dev/nvidia0"); },
     "a mapping of the device /dev/nvidia0"},
    {"shared_memory", [](World& w) { w.Hold(Held::SHARED_MEMORY, "/dev/shm/mpich"); },
     "shared memory /dev/shm/mpich"},
    {"namespace", [](World& w) { w.Hold(Held::NAMESPACE, "a net namespace of its own"); },
     "is in a net namespace"},
    {"other_socket", [](World& w) { w.Hold(Held::OTHER_SOCKET, "packet socket"); },
     "holds a packet socket"},
    {"udp", [](World& w) { w.Hold(Held::UDP, "UDP socket"); }, "UDP socket"},
    {"unix", [](World& w) { w.Hold(Held::UNIX_SOCKET, "Unix socket"); }, "outside the rank"},
    {"io_uring", [](World& w) { w.Hold(Held::IO_URING, ""); }, "holds an io_uring (rank 3"},
    {"device", [](World& w) { w.Hold(Held::DEVICE, "/dev/nvidia0"); }, "the device /dev/nvidia0"},
    {"sysv", [](World& w) { w.Hold(Held::SYSV_SHM, "SYSV2a, shmid 5"); }, "shmid 5"},
    {"terminal", [](World& w) { w.Hold(Held::TERMINAL, "/dev/pts/0"); }, "/dev/pts/0"},
    {"debugger", [](World& w) { w.Hold(Held::TRACED, "PID 9"); }, "is traced by PID 9"},
    {"stray", [](World& w) { w.Hold(Held::STRAY, "daemon").clear_process(); }, "daemon has left"},
};
INSTANTIATE_TEST_SUITE_P(Rows, Difference, testing::ValuesIn(kRows),
                         [](const auto& info) { return info.param.name; });

TEST(Compare, WarningsDoNotRefuse) {
  World world;
  world.target.set_time_us(1'060'000'000);
  const wire::Findings findings = world.Run();
  ASSERT_EQ(findings.findings_size(), 1);
  EXPECT_FALSE(Refuses(findings));
  EXPECT_THAT(Sentence(findings.findings(0)), HasSubstr("60.0 s ahead of"));
}

TEST(Compare, OneLibraryOfManyRanksIsOneFinding) {
  World world;
  wire::RankFacts second = world.rank();
  second.set_rank(4);
  *world.source.add_ranks() = second;
  world.answers["/lib/libc.so.6"].set_build_id("xyz");
  const wire::Findings findings = world.Run();
  ASSERT_EQ(findings.findings_size(), 1);
  EXPECT_THAT(Sentence(findings.findings(0)), HasSubstr("(ranks 3, 4)"));
}

TEST(Compare, EverythingIsToldAtOnce) {
  World world;
  world.Hold(Held::IO_URING, "");
  world.Hold(Held::DEVICE, "/dev/x");
  EXPECT_THAT(Refusals(world.Run()),
              testing::AllOf(HasSubstr("(1) solver"), HasSubstr("(2) solver")));
}

TEST(Compare, WhatIsGoneAMomentLaterIsInNobodysWay) {
  World earlier;
  earlier.Hold(Held::TCP, "TCP connection a -> b");
  earlier.Hold(Held::UDP, "UDP socket");
  World later;
  later.Hold(Held::TCP, "TCP connection a -> c");
  later.Hold(Held::UDP, "UDP socket");
  KeepWhatLasts(earlier.source, &later.source);
  const wire::Findings findings = CheckHoldings(later.source);
  ASSERT_EQ(findings.findings_size(), 1);
  EXPECT_THAT(Sentence(findings.findings(0)), HasSubstr("UDP socket"));
}

TEST(Compare, NodesOfOneJobAreComparedByTheirLibraries) {
  wire::NodeFacts here = Node("here"), there = Node("there");
  *here.add_libraries() = File("/lib/libmpich.so.12", "a");
  *there.add_libraries() = File("/lib/libmpich.so.12", "b");
  EXPECT_THAT(Refusals(CompareNodes(here, there, "")), HasSubstr("/lib/libmpich.so.12"));
  *there.mutable_libraries(0) = here.libraries(0);
  EXPECT_EQ(CompareNodes(here, there, "").findings_size(), 0);
}

}  // namespace
}  // namespace xmpi::preflight
