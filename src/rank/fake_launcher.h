// FakeLauncher plays launcher and proxy for a job of real MPICH ranks, so that a test can take each
// step of a quiesce itself. The ranks run under the stock process manager; each is wrapped so that
// its control socket leads here. It owns the job's processes, its folder and its sockets; it waits
// for events with a generous deadline and fails the test (by throwing) when one passes.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "wire/rank_link.h"

namespace xmpi::rank {

struct Received : rank_link::Message {
  std::string words;  // the text, owned
};

class FakeLauncher {
 public:
  // Starts rank_program with `words` and waits for every rank's hello.
  FakeLauncher(int ranks, const std::vector<std::string>& words,
               const std::vector<std::string>& environment = {});
  ~FakeLauncher();

  // Runs rank_program under plain mpiexec, or alone if `ranks` is 0; the exit code.
  static int RunPlain(int ranks, const std::vector<std::string>& words);

  int size() const { return static_cast<int>(ranks_.size()); }
  pid_t pid(int rank) const { return ranks_[rank].pid; }
  const Received& hello(int rank) const { return ranks_[rank].hello; }
  const std::string& sockets(int rank) const { return ranks_[rank].sockets; }

  void Send(int rank, const rank_link::Message& message);
  void SendAll(const rank_link::Message& message);
  void SendBytes(int rank, const std::string& bytes);
  void Signal(int rank, int signal_number = 0);
  void Notice(int rank, MigrationId migration);
  void NoticeAll(MigrationId migration);

  // Past what it tells of its sockets meanwhile.
  Received Next(int rank) { return Read(ranks_[rank]); }
  // The next packet of a rank; throws unless it is of that kind and migration.
  Received Expect(int rank, rank_link::Kind kind, MigrationId migration);
  std::vector<Received> ExpectAll(rank_link::Kind kind, MigrationId migration);
  // Whether a packet of this rank is waiting.
  bool Pending(int rank) const;

  // Steps 2 and 3: notice, then agree on the greatest count + 1, which is returned.
  std::uint64_t AgreeAll(MigrationId migration);
  // Steps 4 to 6: arrived, check, teardown, parked.
  void ParkAll(MigrationId migration);
  void ContinueAll(MigrationId migration);
  void WholeCycle(MigrationId migration);
  void CancelAll(MigrationId migration);

  void WaitForFile(const std::string& place, int rank) const;  // "gate", "finalized"
  void WaitForFiles(const std::string& place) const;
  void MakeFile(const std::string& name) const;  // "open", "stop"
  void CloseControl(int rank) { ranks_[rank].control.Close(); }

  std::string Proc(int rank, const std::string& file) const;  // the text of /proc/PID/`file`
  long ResidentKb(int rank) const;
  int OpenFiles(int rank) const;

  // Waits for the job's end; its exit code, or 128 + signal.
  int Wait();
  std::string Output() const;
  std::string Errors() const;
  // Everything that "stop" means: the file, the end with code 0, the line with the steps.
  void FinishWell(int rebuilds);

 private:
  struct Rank {
    Fd control;
    pid_t pid = 0;
    Received hello{};
    std::string sockets{};  // as it told last
  };

  void Start(int ranks, const std::vector<std::string>& words,
             const std::vector<std::string>& environment);
  void AcceptAll(int ranks);
  Received Read(Rank& rank) const;
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
  Fd listener_;
  pid_t job_ = 0;
  std::vector<Rank> ranks_;
};

}  // namespace xmpi::rank
