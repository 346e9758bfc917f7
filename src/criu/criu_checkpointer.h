// CriuCheckpointer: dumps and restores ranks with `criu swrk`, spawned by the slot's init so that
// it runs in the slot's PID and mount namespaces. One criu process and one worker thread per rank
// under way; the thread only talks to criu and reads /proc. It must be destroyed before its Slot.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "criu/checkpointer.h"
#include "os/slot.h"

namespace xmpi::criu {

class CriuCheckpointer : public Checkpointer {
 public:
  struct Options {
    std::string criu = "criu";  // looked up in PATH, then in /usr/sbin
    int max_parallel = 0;       // 0: as many as the node has cores, at most 8
    int log_level = 2;          // of CRIU: 1 errors, 2 warnings, 3 steps, 4 everything
    std::uint64_t ghost_limit_bytes = kGhostLimitBytes;  // of a deleted but open file
    bool lazy = true;  // false: ranks never run before they have their memory (for tests)
  };

  CriuCheckpointer(os::Slot* slot, Post post, Options options);
  CriuCheckpointer(os::Slot* slot, Post post)
      : CriuCheckpointer(slot, std::move(post), Options{}) {}
  ~CriuCheckpointer() override;

  void Check(std::function<void(Result<Preflight>)> done) override;
  void Dump(DumpRequest request, std::function<void(DumpDone)> done) override;
  void Restore(RestoreRequest request, std::function<void(RestoreDone)> done) override;
  void FillMemory(std::function<void(Result<>)> done) override;
  FillProgress Filled() const override;
  std::vector<image::HeldFile> HeldFiles(RankId rank, pid_t pid) override;
  image::LookAt Looker() override;
  Result<> TakeFiles(const std::set<std::string>& files_at_target,
                     image::RankImage* image) override;
  void KeepFiles() override;
  void Cancel() override;
  ProcessState State(pid_t pid) override;
  Result<> Continue(pid_t pid) override;
  Result<> Kill(pid_t pid) override;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace xmpi::criu
