// FakeCheckpointer: for tests of those who use a Checkpointer. It succeeds, fails or waits as told,
// and remembers what it was asked. Single-threaded; nothing happens until RunPending().
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "criu/checkpointer.h"

namespace xmpi::criu {

class FakeCheckpointer : public Checkpointer {
 public:
  // What the next calls do, by rank; absent: succeed.
  struct Plan {
    bool hold = false;                               // no answer until Release(rank)
    std::string error = {};                          // not empty: fail with this text
    ProcessState original = ProcessState::kStopped;  // what a dump leaves behind
  };
  std::map<RankId, Plan> dumps;
  std::map<RankId, Plan> restores;
  std::string check_error;
  std::string fill_error;

  // Everything asked, in order: "dump 3", "restore 3", "continue 17", "kill 17", "fill", "cancel".
  std::vector<std::string> calls;

  void RunPending();
  void Release(RankId rank);

  void Check(std::function<void(Result<Preflight>)> done) override;
  void Dump(DumpRequest request, std::function<void(DumpDone)> done) override;
  void Restore(RestoreRequest request, std::function<void(RestoreDone)> done) override;
  void FillMemory(std::function<void(Result<>)> done) override;
  FillProgress Filled() const override { return {}; }
  std::vector<image::HeldFile> HeldFiles(RankId, pid_t) override { return {}; }
  image::LookAt Looker() override { return nullptr; }
  Result<> TakeFiles(const std::set<std::string>&, image::RankImage*) override { return {}; }
  void KeepFiles() override { calls.push_back("keep"); }
  void Cancel() override;
  ProcessState State(pid_t pid) override;
  Result<> Continue(pid_t pid) override;
  Result<> Kill(pid_t pid) override;

 private:
  void Queue(RankId rank, const Plan& plan, std::function<void(std::string)> finish);

  struct Pending {
    RankId rank;
    bool hold;
    std::string error;
    std::function<void(std::string)> finish;  // with the error's text
  };
  std::deque<Pending> pending_;
  std::map<pid_t, ProcessState> states_;
};

}  // namespace xmpi::criu
