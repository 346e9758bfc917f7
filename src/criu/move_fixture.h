// What the move tests share: a little proxy made of a slot, a checkpointer and an event loop, and
// the proxy's ends of a parked rank's pipes and sockets.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "criu/criu_checkpointer.h"
#include "image/manifest.h"
#include "image/pages.h"
#include "os/slot.h"

namespace xmpi::criu {

// Closures posted by the checkpointers' threads.
class Mailbox {
 public:
  Mailbox();
  Post post();
  int fd() const { return wake_.get(); }
  void Run();

 private:
  Fd wake_;
  std::mutex mutex_;
  std::deque<std::function<void()>> closures_;
};

// The proxy's ends, and the rank's ends until the rank has them.
struct Wires {
  static Wires Make();
  std::vector<NewTie> NewTies() const;
  std::vector<Tie> Ties() const;  // with the inodes of the rank's ends
  std::vector<os::SpawnFd> SpawnFds() const;
  void CloseRankEnds();
  // One question and its answer on the control socket; "(no answer)" after the deadline.
  std::string Ask(const std::string& question) const;
  std::string ReadOutput(std::size_t size) const;

  Fd control, pmi, input, output, error;                           // ours
  Fd rank_control, rank_pmi, rank_input, rank_output, rank_error;  // the rank's
  std::vector<Tie> ties;
};

// A store of pages as a target has it, simple and slow.
class HeldPages : public image::StoredPages {
 public:
  void Take(const image::TaskMemory& task, image::PageSource& from);
  // How many pages are held.
  std::uint64_t size() const;

  Result<std::size_t> Read(pid_t pid, std::uint64_t address, std::span<std::byte> out) override;
  Found Find(pid_t pid, std::uint64_t address, std::uint64_t most) override;
  void Release(pid_t pid, image::PageRun run) override;

 private:
  struct Region {
    std::vector<std::byte> bytes;
    std::vector<Kind> kinds;
  };
  mutable std::mutex mutex_;
  std::map<std::pair<pid_t, std::uint64_t>, Region> regions_;
};

class MoveTest : public testing::Test {
 protected:
  struct Place {
    ~Place() { *alive = false; }
    std::shared_ptr<bool> alive = std::make_shared<bool>(true);
    std::unique_ptr<os::Slot> slot;
    std::unique_ptr<CriuCheckpointer> checkpointer;
    std::map<pid_t, int> exits;
  };
  struct Rank {
    Wires wires;
    pid_t pid = 0;
    pid_t host_pid = 0;
  };

  void SetUp() override;
  std::unique_ptr<Place> MakePlace(CriuCheckpointer::Options options = {});
  // On a node with a time namespace of its own; `offsets` as for /proc/PID/timens_offsets.
  std::unique_ptr<Place> MakePlaceWithClock(const char* offsets);
  Result<Preflight> Check(Place& place);
  Rank Start(Place& place, int mebibytes = 8);
  DumpDone Dump(Place& place, const Rank& rank);
  std::vector<DumpDone> DumpAll(const std::vector<Place*>& places, const std::vector<Rank>& ranks);
  // Dump, transfer, restore, adoption of the copy, end of the original, filling.
  Rank Move(Place& source, Rank rank, Place& target);
  // Sends the image through a socketpair into an assembler, as between two proxies; its memory
  // comes to lie in HeldPages.
  image::RankImage Transfer(image::RankImage image);
  static std::shared_ptr<HeldPages> HeldOf(const image::RankImage& image);
  RestoreDone Restore(Place& place, image::RankImage image, const Wires& wires);
  Result<> FillMemory(Place& place);
  // Dispatches slots and mailbox until it holds; fails the test at the deadline.
  void Until(const std::function<bool()>& holds);

  Mailbox mailbox_;
  std::vector<std::pair<Place*, std::shared_ptr<bool>>> places_;
};

// The value behind "key=" in a parked rank's answer to "state".
std::string Field(const std::string& state, const std::string& key);
void ExpectSound(const std::string& state);

}  // namespace xmpi::criu
