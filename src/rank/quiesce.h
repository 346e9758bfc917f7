// The safe point of one rank: the signal handler, and the slow path of XMPI_Quiesce that takes the
// rank from a notice to parked and back (design: quiesce, step by step). It owns the control socket
// and the quiesce state; the thread that called Start is the only one that may pass a safe point.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <sys/types.h>

#include <atomic>
#include <string>

#include "rank/link.h"
#include "rank/quiesce_state.h"

namespace xmpi::rank {

class SafePoint {
 public:
  // XMPI_Init, in two halves: before the session (handler installed, its signal blocked in this
  // thread) and after it (hello, signal unblocked). Without a launcher nothing is installed.
  void Prepare();
  void Start(int rank);
  // Undoes Prepare: XMPI_Init failed.
  void Withdraw();

  // XMPI_Finalize, in two halves. The handler stays: a late signal must not kill the process.
  void BeginEnd();
  void End();

  // The slow path. The call is counted already. False after a misuse, which has been said.
  bool Pass(bool* rebuilt);

  // The proxy must always know which sockets will be closed when this rank parks.
  void TellSockets();

  bool started() const { return started_; }
  bool attached() const { return link_.attached(); }

 private:
  static void OnSignal(int signal);
  void HandleSignal();

  bool OnOwnThread();
  bool ReadOne();      // takes one packet, if there is one
  bool Drain();        // takes packets until one needs this rank to act first
  void WaitForWord();  // drives MPI progress; at most 1 ms without a packet
  bool StopHere();     // at stop_call; true when everything was rebuilt
  void Arrive();
  void Check();
  void Teardown();
  void Park();
  void Reopen();

  Reaction Take(const rank_link::Message& message);
  void React(Reaction reaction);
  void SendDue();
  rank_link::Message Fill(rank_link::Kind kind) const;
  rank_link::Message Answer(Reaction reaction) const;
  void Send(const rank_link::Message& message);
  void UpdateRequested();

  Link link_;
  QuiesceState state_;
  bool report_due_ = false;  // a report did not fit the socket; the slow path sends it
  bool resume_due_ = false;
  bool started_ = false;
  int signal_ = 0;
  int quiet_rounds_ = 0;  // rounds of WaitForWord since the last packet
  pthread_t thread_{};
  pid_t thread_id_ = 0;
  std::string told_sockets_;
  std::atomic<pid_t> strayed_thread_ = 0;  // another thread that passed a safe point
};

extern SafePoint safe_point;

}  // namespace xmpi::rank
