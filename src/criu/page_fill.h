// PageFill: gives one restored rank its memory after it runs. CRIU restores the rank's processes
// with their pages missing and hands over a userfaultfd of each; a thread here puts a page in when
// it is touched, and, once the copy is the rank, all others in the order of their addresses. It
// follows what the processes do to their address spaces meanwhile: fork, mremap, munmap, madvise,
// exit.
//
// A userfaultfd that is closed while pages are missing turns these into zeros without a word, so
// the descriptors also lie, on their way, in a socket whose other end is keeper(): whoever holds
// that as long as the rank's processes live keeps them waiting when this is gone. Before Fill
// nothing is given back to the store, which another restore may need.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "criu/checkpointer.h"
#include "criu/missing_pages.h"
#include "image/pages.h"

namespace xmpi::criu {

class PageFill {
 public:
  // Why this kernel does not let us; an error that names the remedy.
  static Result<> Available();

  // Waits for the criu process whose images directory this is; begin it before that.
  static Result<std::unique_ptr<PageFill>> Begin(const Fd& images,
                                                 const std::vector<image::TaskMemory>& memory,
                                                 std::shared_ptr<image::StoredPages> pages);
  ~PageFill();  // leaves what is missing missing

  int keeper() const { return keeper_.get(); }
  // `done` runs once, on the thread in here: every page is in and no userfaultfd is left, or why
  // the rank waits for one for ever.
  void Fill(std::function<void(Result<>)> done);
  FillProgress progress() const { return {.pages = filled_, .total_pages = total_}; }

 private:
  struct Task {
    pid_t pid = 0;  // in the image; of a child born since, its parent's
    Fd uffd;
    MissingPages missing;
    std::uint64_t next = 0;  // where the filling goes on
    bool gone = false;
  };
  enum class Put { kDone, kLater };

  PageFill() = default;
  void Run();
  Result<bool> Step();  // false: there is nothing left to do
  Result<> ReadFromCriu();
  Result<> TakeTask(pid_t pid);
  Result<> ReadEvents(Task* task);
  Result<> OnFault(Task* task, std::uint64_t address);
  Result<> OnFork(const Task& parent, Fd uffd);
  Result<> Keep(const Fd& uffd);
  Result<bool> FillSome();
  Result<Put> PutPages(Task* task, MissingRun run);
  Result<Put> OnPutFailure(const MissingRun& run, int error);
  std::uint64_t Drop(Task* task, std::uint64_t begin, std::uint64_t end);  // gives how many pages
  void End(Task* task);
  void Count(const MissingRun& run, bool more);
  void Release(pid_t pid, std::uint64_t region);
  void EmptyKeeper();

  Fd images_, listener_, criu_, wake_;
  Fd keeper_, into_keeper_;
  std::shared_ptr<image::StoredPages> pages_;
  std::map<pid_t, image::TaskMemory> memory_;  // not yet with a task
  bool restored_ = false;                      // CRIU has said so
  std::list<Task> tasks_;
  // By process of the image and region: how many pages are missing that lie there.
  std::map<std::pair<pid_t, std::uint64_t>, std::uint64_t> wanted_;
  // The page that could not be put in when it was last tried, and since when.
  struct NoPlace {
    std::uint64_t address = 0;
    std::chrono::steady_clock::time_point since;
  };
  std::optional<NoPlace> no_place_;

  std::atomic<std::uint64_t> filled_ = 0, total_ = 0;
  std::atomic<bool> stop_ = false, filling_ = false;
  bool releasing_ = false;
  std::function<void(Result<>)> done_;  // set before filling_
  std::jthread thread_;
};

}  // namespace xmpi::criu
