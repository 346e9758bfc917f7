// Real MPICH programs as ranks of an emulated job: several Servers and their Hub in this process,
// a socket pair to each rank. What the transcripts show of one MPICH, this shows of the installed
// one.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <format>
#include <string>
#include <vector>

#include "base/fd.h"
#include "pmi/testing.h"

namespace xmpi::pmi {
namespace {

using Clock = std::chrono::steady_clock;
using testing::HasSubstr;

constexpr auto kDeadline = std::chrono::seconds(90);

struct RankProcess {
  pid_t pid = 0;
  Fd pmi;     // our end; closed when the rank closed its own
  Fd output;  // of its stdout
  std::string printed;
  int status = -1;
};

class Ranks {
 public:
  Ranks(const JobFacts& facts, std::vector<std::string> argv) : job_(facts), ranks_(Size()) {
    for (RankId rank = 0; rank < Size(); ++rank) Start(rank, argv);
  }
  ~Ranks() {
    for (RankProcess& rank : ranks_) {
      if (rank.status >= 0) continue;
      kill(rank.pid, SIGKILL);
      waitpid(rank.pid, nullptr, 0);
    }
  }

  // Serves the ranks until all are gone, one has aborted the job, or one broke the protocol.
  void Run() {
    const auto deadline = Clock::now() + kDeadline;
    while (Serve(deadline)) {
      if (!job_.aborts.empty() || !job_.errors.empty()) return;
      ASSERT_LT(Clock::now(), deadline) << "the ranks hang";
    }
    for (RankProcess& rank : ranks_) ASSERT_EQ(waitpid(rank.pid, &rank.status, 0), rank.pid);
  }

  void ExpectSuccess() {
    EXPECT_THAT(job_.errors, testing::IsEmpty());
    for (RankId rank = 0; rank < Size(); ++rank) {
      EXPECT_TRUE(WIFEXITED(ranks_[rank].status) && WEXITSTATUS(ranks_[rank].status) == 0)
          << "rank " << rank << " status " << ranks_[rank].status << "\n"
          << ranks_[rank].printed;
      EXPECT_FALSE(job_.ServerOf(rank).IsOpen(rank)) << "no finalize from rank " << rank;
      EXPECT_EQ(job_.ServerOf(rank).live_generations(), 0u);
    }
  }

  Job& job() { return job_; }
  const std::string& printed(RankId rank) const { return ranks_[rank].printed; }
  RankId Size() const { return job_.slot_of_rank().size(); }

 private:
  void Start(RankId id, std::vector<std::string>& argv) {
    int pmi[2], output[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pmi), 0);
    ASSERT_EQ(pipe2(output, O_CLOEXEC), 0);
    RankProcess& rank = ranks_[id];
    rank.pmi = Fd(pmi[0]);
    rank.output = Fd(output[0]);
    const Fd theirs(pmi[1]), printer(output[1]);
    const std::vector<std::string> environment = EnvironmentOf(id, theirs.get());
    std::vector<char*> arguments, variables;
    for (std::string& argument : argv) arguments.push_back(argument.data());
    for (const std::string& variable : environment) {
      variables.push_back(const_cast<char*>(variable.data()));
    }
    arguments.push_back(nullptr);
    variables.push_back(nullptr);
    rank.pid = fork();
    if (rank.pid == 0) {
      fcntl(theirs.get(), F_SETFD, 0);
      dup2(printer.get(), STDOUT_FILENO);
      dup2(printer.get(), STDERR_FILENO);
      execve(arguments[0], arguments.data(), variables.data());
      _exit(127);
    }
    ASSERT_GT(rank.pid, 0);
  }

  std::vector<std::string> EnvironmentOf(RankId id, int pmi_fd) const {
    return {std::format("PMI_FD={}", pmi_fd), std::format("PMI_RANK={}", id),
            std::format("PMI_SIZE={}", Size()), "PATH=/usr/bin:/bin",
            // Slots that share a host must not take UCX's own shared memory.
            "UCX_TLS=^sm",
            // Ranks outnumber cores here and MPICH polls without rest.
            "MPIR_CVAR_ENABLE_HEAVY_YIELD=1", "MPIR_CVAR_POLLS_BEFORE_YIELD=1"};
  }

  // Waits for one event and handles it. False when every rank has closed its end.
  bool Serve(Clock::time_point deadline) {
    std::vector<pollfd> fds;
    std::vector<std::pair<RankId, bool>> who;
    for (RankId rank = 0; rank < Size(); ++rank) {
      for (const bool is_pmi : {true, false}) {
        const Fd& fd = is_pmi ? ranks_[rank].pmi : ranks_[rank].output;
        if (!fd) continue;
        fds.push_back({fd.get(), POLLIN, 0});
        who.emplace_back(rank, is_pmi);
      }
    }
    if (fds.empty()) return false;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    poll(fds.data(), fds.size(), std::max<int>(0, left.count()));
    for (std::size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].revents != 0) Read(who[i].first, who[i].second);
    }
    return true;
  }

  void Read(RankId id, bool is_pmi) {
    RankProcess& rank = ranks_[id];
    Fd& fd = is_pmi ? rank.pmi : rank.output;
    char buffer[65536];
    const ssize_t bytes = read(fd.get(), buffer, sizeof buffer);
    if (bytes <= 0) return fd.Close();
    if (!is_pmi) {
      rank.printed.append(buffer, bytes);
      return;
    }
    job_.Feed(id, std::string_view(buffer, bytes));
    for (auto& [other, lines] : job_.said) {
      for (; !lines.empty(); lines.pop_front()) Write(other, lines.front() + "\n");
    }
  }

  void Write(RankId id, const std::string& bytes) {
    // Replies are short and the rank waits for each: they always fit into its socket.
    const ssize_t written = send(ranks_[id].pmi.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    EXPECT_EQ(written, static_cast<ssize_t>(bytes.size())) << "to rank " << id;
  }

  Job job_;
  std::vector<RankProcess> ranks_;
};

std::string Program(const std::string& name) { return std::string(XMPI_PMI_PROGRAMS) + "/" + name; }

void ExpectNodeSizes(Ranks& ranks, const std::vector<int>& sizes) {
  for (RankId rank = 0; rank < ranks.Size(); ++rank) {
    EXPECT_THAT(ranks.printed(rank), HasSubstr(std::format("rank {} of {}:", rank, sizes.size())));
    EXPECT_THAT(ranks.printed(rank), HasSubstr(std::format("node of {},", sizes[rank])));
  }
}

TEST(Mpich, HelloAlone) {
  Ranks ranks({.slots = {{0}}, .universe_size = 4}, {Program("hello")});
  ranks.Run();
  ranks.ExpectSuccess();
  EXPECT_THAT(ranks.printed(0), HasSubstr("universe 4, appnum 0"));
}

TEST(Mpich, HelloInOneSlot) {
  Ranks ranks({.slots = {{0, 1, 2}}}, {Program("hello")});
  ranks.Run();
  ranks.ExpectSuccess();
  ExpectNodeSizes(ranks, {3, 3, 3});
}

TEST(Mpich, HelloInTwoSlotsWithSegments) {
  Ranks ranks({.slots = {{0, 1}, {2, 3}}, .appnums = {0, 0, 1, 1}}, {Program("hello")});
  ranks.Run();
  ranks.ExpectSuccess();
  ExpectNodeSizes(ranks, {2, 2, 2, 2});
  EXPECT_THAT(ranks.printed(3), HasSubstr("appnum 1"));
}

TEST(Mpich, HelloInUnevenSlots) {
  Ranks ranks({.slots = {{0, 1, 2}, {3}}}, {Program("hello")});
  ranks.Run();
  ranks.ExpectSuccess();
  ExpectNodeSizes(ranks, {3, 3, 3, 1});
}

TEST(Mpich, HelloWithRanksDealtAround) {
  Ranks ranks({.slots = {{0, 2, 4}, {1, 3}}}, {Program("hello")});
  ranks.Run();
  ranks.ExpectSuccess();
  ExpectNodeSizes(ranks, {3, 2, 3, 2, 3});
}

TEST(Mpich, SessionsAgainAndAgain) {
  Ranks ranks({.slots = {{0, 1}, {2, 3}}}, {Program("sessions"), "4"});
  ranks.Run();
  ranks.ExpectSuccess();
  EXPECT_EQ(ranks.job().ServerOf(3).GenerationOf(3), 4u);
  for (RankId rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(ranks.printed(rank), HasSubstr(std::format("cycle 3: rank {} of 4: sum 6", rank)));
  }
  for (Generation generation = 1; generation <= 4; ++generation) {
    EXPECT_THAT(ranks.job().opened, testing::Contains(FenceId{generation, 1}));
  }
}

TEST(Mpich, NamesAcrossSlots) {
  Ranks ranks({.slots = {{0}, {1}}}, {Program("names")});
  ranks.Run();
  ranks.ExpectSuccess();
}

TEST(Mpich, AbortReachesUsWithItsCode) {
  Ranks ranks({.slots = {{0}, {1}}}, {Program("abort")});
  ranks.Run();
  ASSERT_EQ(ranks.job().aborts.size(), 1u);
  EXPECT_EQ(ranks.job().aborts[0].rank, 1u);
  EXPECT_EQ(ranks.job().aborts[0].code, 7);
  EXPECT_THAT(ranks.job().aborts[0].message, HasSubstr("MPI_Abort(MPI_COMM_WORLD, 7)"));
}

}  // namespace
}  // namespace xmpi::pmi
