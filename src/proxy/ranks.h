// Ranks: the processes of this proxy's slot, started or restored, with their sockets and streams.
// It carries bytes between them and the proxy's machine, signals and ends them, and tells of an end
// only when everything that the rank has written before is delivered. It starts and dumps nothing
// itself. One event loop, one thread.
#pragma once

#include <sys/types.h>

#include <asio.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "core/agent_event.h"
#include "os/slot.h"
#include "proxy/duplex.h"
#include "proxy/stdio.h"
#include "proxy/ties.h"

namespace xmpi::proxy {

class Ranks {
 public:
  using Deliver = std::function<void(core::AgentEvent)>;

  Ranks(asio::io_context& loop, OutputRelay* output, InputFeed* input, Deliver deliver);
  ~Ranks();

  // A process that now lives; our ends of its ties.
  void Add(RankId rank, os::Spawned process, std::vector<TieEnds> ties);
  void OnExit(os::SlotExit exit);
  // While a slot's ranks are being started or restored: exits wait until all have been added, or
  // do not count because none will be.
  void HoldExits() { holding_exits_ = true; }
  void ReleaseExits();
  void ForgetExits();
  // A process of this PID begins its life now: what was held was its predecessor's end.
  void ForgetExitsOf(pid_t pid);

  void Tell(RankId rank, const core::RankMessage& message);
  void WritePmi(RankId rank, std::string bytes);
  void ClosePmi(RankId rank);
  // Exactly this thread, as the rank numbers it. A thread that has ended is no error.
  void Signal(RankId rank, pid_t thread, int signal);

  // SIGTERM, then SIGKILL after the grace to what is left; `at_once`: SIGKILL. What is stopped gets
  // SIGKILL anyway. Also to what the ranks have forked and not moved to another session.
  void End(bool at_once);
  // Ends all and forgets them without a word, as if they had never been: copies that never ran.
  void Forget();

  struct Process {
    pid_t pid = 0;       // in the slot
    pid_t host_pid = 0;  // as this proxy sees it
    std::vector<criu::Tie> ties{};
  };
  // Those that have not ended.
  std::map<RankId, Process> Living() const;
  bool empty() const { return ranks_.empty(); }

 private:
  struct Rank {
    Process process;
    Fd pidfd;
    std::shared_ptr<Duplex> control;
    std::shared_ptr<Duplex> pmi;
    bool ended = false;
  };

  void OnControl(RankId rank, std::string_view packet);
  void Kill(const Rank& rank, int signal);
  void KillRest();

  asio::io_context& loop_;
  OutputRelay* output_;
  InputFeed* input_;
  Deliver deliver_;
  std::map<RankId, Rank> ranks_;
  bool holding_exits_ = false;
  std::vector<os::SlotExit> held_exits_;
  asio::steady_timer grace_;
};

}  // namespace xmpi::proxy
