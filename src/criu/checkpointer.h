// Checkpointer: the seam between the proxy and whatever dumps and restores ranks. The proxy owns
// one per slot. Every `done` runs through the Post function given to the implementation, on the
// proxy's thread, exactly once, unless the checkpointer is destroyed first. Nothing here blocks the
// caller for longer than a few system calls.
//
// A dump leaves its rank stopped; nothing here ever kills or continues a rank unasked. Until the
// caller says otherwise the original exists, stopped or running as DumpDone::original says.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/ids.h"
#include "base/limits.h"
#include "image/manifest.h"
#include "image/pages.h"
#include "image/source.h"

namespace xmpi::criu {

// Hands a closure to the proxy's event loop; callable from any thread.
using Post = std::function<void(std::function<void()>)>;

// A descriptor that ties the rank to its proxy: it is not part of the image, and the restored rank
// gets another in its place under the same numbers.
struct Tie {
  image::TieKind kind{};
  std::uint64_t inode = 0;  // st_ino of the rank's end, from fstat at the spawn or restore
};

// Deleted but open files up to this size travel in the image. CRIU takes no larger limit; what
// memory has no room for fails by itself.
inline constexpr std::uint64_t kGhostLimitBytes = UINT32_MAX;

struct DumpRequest {
  RankId rank = 0;
  pid_t pid = 0;  // in the slot; a session leader. Its threads and its children come along.
  std::vector<Tie> ties;
  // Files that a rank holds by name travel with its image, but for those that the target has
  // (paths, as its Looker told before) or when they must not: then the dump fails and names one.
  std::set<std::string> files_at_target{};
  bool carry_files = true;
  std::uint64_t image_limit_bytes = 0;  // 0: as much as the node's memory allows
  std::chrono::milliseconds timeout = limits::kCriuWork;
};

enum class ProcessState { kRunning, kStopped, kGone };

struct DumpDone {
  RankId rank = 0;
  // The image: a memory-backed directory and the manifest but for the files' lengths and checksums,
  // which image::Source fills in while it reads them. The manifest's `memory` names the pages that
  // are not in it and that the stopped original still has.
  Result<image::RankImage> image;
  ProcessState original = ProcessState::kGone;  // read from /proc after the dump, failed or not
  std::string log;                              // CRIU's own, its end when it is long
  std::chrono::microseconds took{0};
};

struct NewTie {
  image::TieKind kind{};
  int fd = -1;  // the rank's end; stays the caller's. A pipe's unread bytes are put into it first.
};

struct RestoreRequest {
  image::RankImage image;  // verified, see image::Assembler; comes back in RestoreDone
  // Its memory, when the manifest names some. The rank runs before it has it: pages are put in when
  // they are touched, and after FillMemory all others too. Let go of when it is filled.
  std::shared_ptr<image::StoredPages> pages{};
  std::vector<NewTie> ties;
  // Every PID and TID of all ranks that will live in the slot: CRIU's helpers keep clear of them.
  std::vector<pid_t> reserved_pids;
  std::chrono::milliseconds timeout = limits::kCriuWork;
};

struct RestoreDone {
  RankId rank = 0;
  Result<pid_t> pid;  // in the slot, the same as before; a child of the slot's init
  image::RankImage image;
  std::string log;
  std::chrono::microseconds took{0};
};

struct Preflight {
  std::string version;        // "4.1.1"
  bool unprivileged = false;  // it has only the capabilities of criu's own file, see Slot::lost
  // Empty: restored ranks run before they have their memory. Else why they cannot.
  std::string why_eager;
  bool lazy_pages() const { return why_eager.empty(); }
};

struct FillProgress {
  std::uint64_t pages = 0;  // that the restored ranks have
  std::uint64_t total_pages = 0;
};

class Checkpointer {
 public:
  virtual ~Checkpointer() = default;

  // Whether this node can dump and restore at all; also warms CRIU's cache of kernel features, so
  // it belongs in prepare. An error says what is missing and the remedy.
  virtual void Check(std::function<void(Result<Preflight>)> done) = 0;

  // Several may be asked for at once; the implementation bounds how many run. The caller stops
  // writing into the rank's pipes before.
  virtual void Dump(DumpRequest request, std::function<void(DumpDone)> done) = 0;
  virtual void Restore(RestoreRequest request, std::function<void(RestoreDone)> done) = 0;
  // The copies go on: every rank restored here gets the rest of its memory, region by region, and
  // the stores give it back as it goes; before, they keep all of it. `done` comes when nothing is
  // missing. Until then a restored rank cannot be dumped. An error names the rank that waits for a
  // page that cannot be had: it never reads a zero instead, and has to be ended.
  virtual void FillMemory(std::function<void(Result<>)> done) = 0;
  virtual FillProgress Filled() const = 0;
  // The files that a rank holds by name now, with what is known of how earlier moves left them.
  virtual std::vector<image::HeldFile> HeldFiles(RankId rank, pid_t pid) = 0;
  // What this node sees of files that ranks hold elsewhere; callable from any thread, also after
  // this is gone.
  virtual image::LookAt Looker() = 0;
  // Adds to an image that is held here what it lacks for a target that has only these files: it was
  // made for this node, and what lay here already did not come with it.
  virtual Result<> TakeFiles(const std::set<std::string>& files_at_target,
                             image::RankImage* image) = 0;
  // The copies go on: files that a restore has written stay. Without it they go with the
  // checkpointer.
  virtual void KeepFiles() = 0;
  // Ends what is under way; each `done` still comes, with an error.
  virtual void Cancel() = 0;

  // The rank's whole tree. Continue sends SIGCONT to those that are stopped and to no other.
  virtual ProcessState State(pid_t pid) = 0;
  virtual Result<> Continue(pid_t pid) = 0;
  virtual Result<> Kill(pid_t pid) = 0;
};

}  // namespace xmpi::criu
