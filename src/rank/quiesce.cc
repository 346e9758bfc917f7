#include "rank/quiesce.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "rank/arrive.h"
#include "rank/books.h"
#include "rank/keeping.h"
#include "rank/say.h"
#include "rank/session.h"
#include "rank/sockets.h"
#include "xmpi.h"

// Not running: the first call before XMPI_Init must reach the slow path to be told so.
xmpi_safe_point_t xmpi_safe_point = {.passed = 0, .requested = 1, .reserved = 0};

namespace xmpi::rank {
namespace {

using rank_link::Kind;
using rank_link::Message;

constexpr std::uint32_t kLibraryVersion =
    XMPI_VERSION_MAJOR * 10000 + XMPI_VERSION_MINOR * 100 + XMPI_VERSION_PATCH;
// So many rounds without a packet spin (a barrier of ranks that all wait ends in microseconds),
// after that each waits a millisecond.
constexpr int kSpinRounds = 64;

std::uint64_t Passed() { return __atomic_load_n(&xmpi_safe_point.passed, __ATOMIC_RELAXED); }

void SetRequested(bool requested) {
  __atomic_store_n(&xmpi_safe_point.requested, requested ? 1 : 0, __ATOMIC_RELAXED);
}

void MaskSignal(int how, int signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  pthread_sigmask(how, &set, nullptr);
}

class SignalBlocked {
 public:
  explicit SignalBlocked(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  ~SignalBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalBlocked(const SignalBlocked&) = delete;

 private:
  sigset_t before_;
};

int NoticeSignal() {
  const char* text = std::getenv("XMPI_SIGNAL");
  if (text == nullptr) return SIGUSR2;
  if (std::strcmp(text, "SIGUSR1") == 0) return SIGUSR1;
  if (std::strcmp(text, "SIGUSR2") == 0) return SIGUSR2;
  char* end = nullptr;
  const long number = std::strtol(text, &end, 10);
  if (end != text && *end == '\0' && number > 0 && number <= SIGRTMAX && number != SIGKILL &&
      number != SIGSTOP)
    return static_cast<int>(number);
  Say("XMPI_SIGNAL=%s is no signal number; SIGUSR2 is used", text);
  return SIGUSR2;
}

[[noreturn]] void ProxyGone() {
  Say("the proxy is gone; this rank ends");
  _exit(EXIT_FAILURE);
}

}  // namespace

SafePoint safe_point;

void SafePoint::Prepare() {
  thread_ = pthread_self();
  thread_id_ = gettid();
  if (!link_.Attach()) return;
  signal_ = NoticeSignal();
  MaskSignal(SIG_BLOCK, signal_);
  struct sigaction action = {};
  struct sigaction before = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  if (::sigaction(signal_, &action, &before) != 0) {  // libc keeps some numbers for itself
    Say("signal %d cannot be handled; SIGUSR2 is used", signal_);
    signal_ = SIGUSR2;
    MaskSignal(SIG_BLOCK, signal_);
    XMPI_CHECK(::sigaction(signal_, &action, &before) == 0);
  }
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
    Say("signal %d had a handler of the program, now replaced; XMPI_SIGNAL chooses another signal",
        signal_);
}

void SafePoint::Start(int rank) {
  __atomic_store_n(&xmpi_safe_point.passed, 0ull, __ATOMIC_RELAXED);
  started_ = true;
  UpdateRequested();
  if (!attached()) return;
  TellSockets();
  Message hello{.kind = Kind::kHello,
                .thread = static_cast<std::uint32_t>(thread_id_),
                .rank = static_cast<RankId>(rank),
                .version = kLibraryVersion,
                .signal = static_cast<std::uint32_t>(signal_)};
  const std::string warning = WhyBooksAreBlind();
  hello.text = warning;
  Trace("hello thread=%d signal=%d%s%s", thread_id_, signal_, warning.empty() ? "" : " ",
        warning.c_str());
  Send(hello);
  MaskSignal(SIG_UNBLOCK, signal_);
}

void SafePoint::TellSockets() {
  const std::string text = attached() ? sockets.Text() : told_sockets_;
  if (text == told_sockets_) return;
  told_sockets_ = text;
  Send({.kind = Kind::kSockets, .text = told_sockets_});
}

void SafePoint::Withdraw() {
  if (!attached()) return;
  link_.Detach();
  MaskSignal(SIG_UNBLOCK, signal_);
}

void SafePoint::BeginEnd() {
  if (attached()) {
    MaskSignal(SIG_BLOCK, signal_);
    Trace("finalizing passed=%llu", static_cast<unsigned long long>(Passed()));
    link_.Send({.kind = Kind::kFinalizing, .passed = Passed()});  // a proxy that is gone needs none
    link_.Detach();
  }
  started_ = false;
  UpdateRequested();
}

void SafePoint::End() {
  if (signal_ != 0) MaskSignal(SIG_UNBLOCK, signal_);
}

void SafePoint::OnSignal(int signal) {
  const int saved_errno = errno;
  // A signal to the process, not from our proxy, may land in any thread: hand it to the right one.
  if (pthread_equal(pthread_self(), safe_point.thread_))
    safe_point.HandleSignal();
  else
    pthread_kill(safe_point.thread_, signal);
  errno = saved_errno;
}

// Reads past an agree or cancel that this rank has not come to read in a call yet: a notice behind
// it must be reported at once, or a peer that waits for the agreement keeps us from our next call.
void SafePoint::HandleSignal() {
  Message message;
  while (attached()) {
    const Link::Got got = link_.ReceiveInHandler(&message);
    if (got != Link::Got::kMessage) {
      UpdateRequested();
      if (got == Link::Got::kLeft) SetRequested(true);
      return;
    }
    const Reaction reaction = Take(message);
    if (reaction != Reaction::kReport && reaction != Reaction::kResume) continue;
    if (link_.SendInHandler(Answer(reaction))) continue;
    (reaction == Reaction::kReport ? report_due_ : resume_due_) = true;
  }
}

Reaction SafePoint::Take(const Message& message) {
  const State from = state_.state();
  const Reaction reaction = state_.On(message, Passed());
  TraceMessage(message, from, state_.state(), reaction == Reaction::kStale);
  return reaction;
}

Message SafePoint::Fill(Kind kind) const { return {.kind = kind, .migration = state_.migration()}; }

Message SafePoint::Answer(Reaction reaction) const {
  const bool report = reaction == Reaction::kReport;
  Message answer = Fill(report ? Kind::kNoticed : Kind::kResumed);
  answer.passed = report ? state_.reported() : Passed();
  return answer;
}

void SafePoint::React(Reaction reaction) {
  if (reaction == Reaction::kReport || reaction == Reaction::kResume) Send(Answer(reaction));
}

void SafePoint::SendDue() {
  if (resume_due_) React(Reaction::kResume);
  if (report_due_ && state_.active()) React(Reaction::kReport);
  report_due_ = resume_due_ = false;
}

void SafePoint::Send(const Message& message) {
  if (!link_.Send(message)) ProxyGone();
}

void SafePoint::UpdateRequested() {
  SetRequested(!started_ || state_.active() || debug.thread || report_due_ || resume_due_);
}

bool SafePoint::OnOwnThread() {
  if (pthread_equal(pthread_self(), thread_)) return true;
  const pid_t strayed = gettid();
  strayed_thread_ = strayed;
  __atomic_fetch_sub(&xmpi_safe_point.passed, 1ull, __ATOMIC_RELAXED);
  Say("XMPI_Quiesce was called by thread %d, but XMPI_Init by thread %d: all calls must come from "
      "that one",
      strayed, thread_id_);
  return false;
}

bool SafePoint::Pass(bool* rebuilt) {
  if (!started_) {
    Say("XMPI_Quiesce was called before XMPI_Init or after XMPI_Finalize");
    return false;
  }
  if (!OnOwnThread()) return false;
  if (!attached()) return true;
  if (state_.state() > State::kAgreed) {
    Say("XMPI_Quiesce was called inside a callback of XMPI_Register");
    return false;
  }
  const SignalBlocked blocked(signal_);
  Drain();
  SendDue();
  for (;;) {
    switch (state_.Next(Passed())) {
      case Step::kGoOn:
        UpdateRequested();
        return true;
      case Step::kWait:
        WaitForWord();
        break;
      case Step::kArrive:
      case Step::kMissed:
        *rebuilt |= StopHere();
        break;
    }
  }
}

bool SafePoint::ReadOne() {
  Message message;
  const Link::Got got = link_.ReceiveNow(&message);
  if (got == Link::Got::kClosed) ProxyGone();
  if (got != Link::Got::kMessage) return false;
  React(Take(message));
  return true;
}

bool SafePoint::Drain() {
  bool any = false;
  for (;;) {
    const State state = state_.state();
    if (state == State::kChecking || state == State::kWithdrawn || state == State::kTearing)
      return any;
    if (!ReadOne()) return any;
    any = true;
  }
}

void SafePoint::WaitForWord() {
  int found = 0;
  PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, session.world(), &found, MPI_STATUS_IGNORE);
  link_.Poll(quiet_rounds_ < kSpinRounds ? 0 : 1);
  quiet_rounds_ = Drain() ? 0 : quiet_rounds_ + 1;
}

bool SafePoint::StopHere() {
  Arrive();
  for (;;) {
    switch (state_.state()) {
      case State::kArrived:
      case State::kRefused:
      case State::kChecked:
        WaitForWord();
        break;
      case State::kChecking:
      case State::kWithdrawn:
        Check();
        break;
      case State::kTearing:
        Teardown();
        Park();
        Reopen();
        return true;
      default:
        return false;  // cancelled, and perhaps noticed again
    }
  }
}

void SafePoint::Arrive() {
  std::string obstacle;
  if (state_.Next(Passed()) == Step::kMissed)
    obstacle = "stop_call " + std::to_string(state_.stop_call()) + " lies behind call " +
               std::to_string(Passed());
  else if (strayed_thread_ != 0)
    obstacle = "XMPI_Quiesce was called by thread " + std::to_string(strayed_thread_) +
               ", but XMPI_Init by thread " + std::to_string(thread_id_);
  else
    obstacle = Obstacle();
  state_.Arrive(!obstacle.empty());
  Trace("arrived migration=%u passed=%llu %s", state_.migration(),
        static_cast<unsigned long long>(Passed()), obstacle.empty() ? "ok" : obstacle.c_str());
  Message arrived = Fill(Kind::kArrived);
  arrived.passed = Passed();
  arrived.refused = !obstacle.empty();
  arrived.text = obstacle;
  Send(arrived);
}

// Once begun, the barrier is ended even when a cancel comes: every rank was told to enter it, and a
// rank that left it would leave the others in it. Nothing behind that cancel is read before.
void SafePoint::Check() {
  MPI_Request barrier = MPI_REQUEST_NULL;
  int code = PMPI_Ibarrier(session.world(), &barrier);
  int done = 0;
  for (int round = 0; !done; ++round) {
    if (code == MPI_SUCCESS) code = PMPI_Test(&barrier, &done, MPI_STATUS_IGNORE);
    if (done || code != MPI_SUCCESS) break;
    link_.Poll(round < kSpinRounds ? 0 : 1);
    if (state_.state() == State::kChecking) ReadOne();
  }
  const auto ended = FromMpi(code, "the barrier before teardown");
  const std::string unmatched = ended ? UnmatchedMessage() : ended.error().message;
  const Reaction reaction = state_.EndCheck(!unmatched.empty());
  Trace("barrier ended migration=%u -> %s %s", state_.migration(), Name(state_.state()),
        unmatched.c_str());
  if (reaction != Reaction::kNone) return React(reaction);
  Message checked = Fill(Kind::kChecked);
  checked.refused = !unmatched.empty();
  checked.text = unmatched;
  Send(checked);
}

void SafePoint::Teardown() {
  keeping.ReleaseAll();
  if (const std::string leftovers = books.Leftovers(); !leftovers.empty())
    Say("the registered release functions left behind what these calls made: %s; it is lost",
        leftovers.c_str());
  books.Clear();
  if (const auto closed = session.Close(); !closed)
    Die("closing the session for migration %u: %s", state_.migration(),
        closed.error().message.c_str());
  state_.Park();
  Trace("parked migration=%u", state_.migration());
  Send(Fill(Kind::kParked));
}

void SafePoint::Park() {
  while (state_.state() == State::kParked) {
    Message message;
    if (link_.ReceiveBlocking(&message) != Link::Got::kMessage) ProxyGone();
    if (Take(message) == Reaction::kStale || message.kind != Kind::kEnv) continue;
    ::setenv(std::string(message.name).c_str(), std::string(message.text).c_str(), 1);
  }
}

void SafePoint::Reopen() {
  sockets.Clear();
  sockets.Begin();
  const auto reopened = session.Reopen();
  if (!reopened)
    Die("opening the session again after migration %u: %s", state_.migration(),
        reopened.error().message.c_str());
  const auto made = keeping.MakeAll(session.world());
  if (!made)
    Die("making the kept objects again after migration %u: %s", state_.migration(),
        made.error().message.c_str());
  sockets.End();
  TellSockets();
  state_.Reopened();
  Message running = Fill(Kind::kRunning);
  running.passed = Passed();
  running.rebuilt = true;
  Trace("running migration=%u rebuilt=1", state_.migration());
  Send(running);
}

}  // namespace xmpi::rank

int xmpi_quiesce_slow(int* rebuilt) {
  bool any = false;
  const bool passed = xmpi::rank::safe_point.Pass(&any);
  if (rebuilt != nullptr) *rebuilt = any ? 1 : 0;
  return passed ? MPI_SUCCESS : MPI_ERR_OTHER;
}
