#include "rank/fake_launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

#include "base/check.h"

namespace xmpi::rank {
namespace {

using rank_link::Kind;
using rank_link::Message;

constexpr int kDeadlineMs = 60'000;

[[noreturn]] void Throw(const std::string& text) { throw std::runtime_error(text); }

void WaitReadable(int fd, const std::string& what) {
  pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
  if (::poll(&waiting, 1, kDeadlineMs) != 1) Throw("deadline passed waiting for " + what);
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void RedirectTo(const std::string& path, int fd) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::dup2(file, fd);
}

std::vector<std::string> MpiexecCommand(int ranks) {
  return {XMPI_TEST_MPIEXEC,    "-launcher", "fork", "-hosts", "localhost", "-n",
          std::to_string(ranks)};
}

// In the child.
[[noreturn]] void Execute(std::vector<std::string> command) {
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  ::setenv("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1", 1);  // ranks outnumber cores
  ::setenv("MPIR_CVAR_POLLS_BEFORE_YIELD", "1", 1);
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

int ExitCode(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

FakeLauncher::FakeLauncher(int ranks, const std::vector<std::string>& words,
                           const std::vector<std::string>& environment) {
  char folder[] = "/tmp/xmpi-rank-test.XXXXXX";
  XMPI_CHECK(::mkdtemp(folder) != nullptr);
  folder_ = folder;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::ranges::copy(Path("control"), address.sun_path);
  listener_ = Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  XMPI_CHECK(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  XMPI_CHECK(::listen(listener_.get(), 64) == 0);
  Start(ranks, words, environment);
  AcceptAll(ranks);
}

FakeLauncher::~FakeLauncher() {
  for (const Rank& rank : ranks_)
    if (rank.pid > 0 && job_ > 0) ::kill(rank.pid, SIGKILL);
  if (job_ > 0) {
    ::kill(job_, SIGTERM);
    ::waitpid(job_, nullptr, 0);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

int FakeLauncher::RunPlain(int ranks, const std::vector<std::string>& words) {
  std::vector<std::string> command = MpiexecCommand(ranks);
  if (ranks == 0) command.clear();
  command.push_back(XMPI_TEST_PROGRAM);
  command.insert(command.end(), words.begin(), words.end());
  const pid_t child = ::fork();
  if (child == 0) Execute(command);
  int status = 0;
  ::waitpid(child, &status, 0);
  return ExitCode(status);
}

void FakeLauncher::Start(int ranks, const std::vector<std::string>& words,
                         const std::vector<std::string>& environment) {
  std::vector<std::string> command = MpiexecCommand(ranks);
  command.insert(command.end(), {XMPI_TEST_WRAP, XMPI_TEST_PROGRAM});
  command.insert(command.end(), words.begin(), words.end());
  job_ = ::fork();
  if (job_ != 0) return;
  ::setenv("XMPI_TEST_SOCKET", Path("control").c_str(), 1);
  ::setenv("RUN_DIR", folder_.c_str(), 1);
  for (const std::string& setting : environment) ::putenv(::strdup(setting.c_str()));
  RedirectTo(Path("out"), STDOUT_FILENO);
  RedirectTo(Path("err"), STDERR_FILENO);
  Execute(command);
}

void FakeLauncher::AcceptAll(int ranks) {
  ranks_.resize(ranks);
  std::vector<Rank> unsorted;
  try {
    for (int i = 0; i < ranks; ++i) {
      WaitReadable(listener_.get(), "a rank to connect");
      Rank rank{.control = Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC))};
      ucred peer = {};
      socklen_t size = sizeof peer;
      ::getsockopt(rank.control.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size);
      rank.pid = peer.pid;
      unsorted.push_back(std::move(rank));
    }
    for (Rank& rank : unsorted) {
      rank.hello = Read(rank);
      if (rank.hello.kind != Kind::kHello || rank.hello.rank >= ranks_.size())
        Throw("the first packet is not a hello");
      ranks_[rank.hello.rank] = std::move(rank);
    }
  } catch (const std::exception& error) {
    for (const Rank& rank : unsorted) ::kill(rank.pid, SIGKILL);
    ::kill(job_, SIGTERM);
    ::waitpid(job_, nullptr, 0);
    Throw(std::string(error.what()) + "; the job said: " + Errors());
  }
}

Received FakeLauncher::Read(Rank& rank) const {
  WaitReadable(rank.control.get(), "a packet");
  char packet[rank_link::kMessageLimit];
  ssize_t size = -1;
  do {  // a rank that ends and has left something unread: its last words come behind that error
    size = ::recv(rank.control.get(), packet, sizeof packet, 0);
  } while (size < 0 && errno == ECONNRESET);
  if (size <= 0) Throw("a rank closed its control socket; the job said: " + Errors());
  const auto message = rank_link::Decode(packet, static_cast<std::size_t>(size));
  if (!message) Throw(std::string("a rank sent a malformed packet: ") + message.error());
  if (message->kind != Kind::kSockets) return {*message, std::string(message->text)};
  rank.sockets = message->text;
  return Read(rank);
}

void FakeLauncher::Send(int rank, const Message& message) {
  Message addressed = message;
  addressed.slot = 7;
  addressed.epoch = 3;
  addressed.attempt = 2;
  char packet[rank_link::kMessageLimit];
  const std::size_t size = rank_link::Encode(addressed, packet);
  XMPI_CHECK(size > 0);
  SendBytes(rank, std::string(packet, size));
}

void FakeLauncher::SendBytes(int rank, const std::string& bytes) {
  if (::send(ranks_[rank].control.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0)
    Throw("rank " + std::to_string(rank) + " is gone");
}

void FakeLauncher::SendAll(const Message& message) {
  for (int rank = 0; rank < size(); ++rank) Send(rank, message);
}

void FakeLauncher::Signal(int rank, int signal_number) {
  const Rank& it = ranks_[rank];
  const int number = signal_number == 0 ? static_cast<int>(it.hello.signal) : signal_number;
  XMPI_CHECK(::syscall(SYS_tgkill, it.pid, it.hello.thread, number) == 0);
}

void FakeLauncher::Notice(int rank, MigrationId migration) {
  Send(rank, {.kind = Kind::kNotice, .migration = migration});
  Signal(rank);
}

void FakeLauncher::NoticeAll(MigrationId migration) {
  for (int rank = 0; rank < size(); ++rank) Notice(rank, migration);
}

Received FakeLauncher::Expect(int rank, Kind kind, MigrationId migration) {
  Received received = Next(rank);
  // A rank whose answer had to wait for room may say again what it has said; the proxy ignores
  // that.
  while (kind != Kind::kNoticed && received.kind == Kind::kNoticed &&
         received.migration == migration)
    received = Next(rank);
  if (received.kind != kind || received.migration != migration)
    Throw("rank " + std::to_string(rank) + " sent " + rank_link::Name(received.kind) +
          " of migration " + std::to_string(received.migration) + " (" + received.words +
          ") instead of " + rank_link::Name(kind) + " of " + std::to_string(migration));
  return received;
}

std::vector<Received> FakeLauncher::ExpectAll(Kind kind, MigrationId migration) {
  std::vector<Received> all;
  for (int rank = 0; rank < size(); ++rank) all.push_back(Expect(rank, kind, migration));
  return all;
}

bool FakeLauncher::Pending(int rank) const {
  pollfd waiting{.fd = ranks_[rank].control.get(), .events = POLLIN, .revents = 0};
  return ::poll(&waiting, 1, 0) == 1;
}

std::uint64_t FakeLauncher::AgreeAll(MigrationId migration) {
  NoticeAll(migration);
  std::uint64_t passed = 0;
  for (const Received& noticed : ExpectAll(Kind::kNoticed, migration))
    passed = std::max(passed, noticed.passed);
  SendAll({.kind = Kind::kAgree, .migration = migration, .stop_call = passed + 1});
  return passed + 1;
}

void FakeLauncher::ParkAll(MigrationId migration) {
  for (const Received& arrived : ExpectAll(Kind::kArrived, migration))
    if (arrived.refused) Throw("refused: " + arrived.words);
  SendAll({.kind = Kind::kCheck, .migration = migration});
  for (const Received& checked : ExpectAll(Kind::kChecked, migration))
    if (checked.refused) Throw("refused: " + checked.words);
  SendAll({.kind = Kind::kTeardown, .migration = migration});
  ExpectAll(Kind::kParked, migration);
}

void FakeLauncher::ContinueAll(MigrationId migration) {
  SendAll({.kind = Kind::kContinue, .migration = migration});
  for (const Received& running : ExpectAll(Kind::kRunning, migration))
    if (!running.rebuilt) Throw("running without rebuilt");
}

void FakeLauncher::WholeCycle(MigrationId migration) {
  AgreeAll(migration);
  ParkAll(migration);
  ContinueAll(migration);
}

void FakeLauncher::CancelAll(MigrationId migration) {
  SendAll({.kind = Kind::kCancel, .migration = migration, .text = "the test says so"});
  ExpectAll(Kind::kResumed, migration);
}

void FakeLauncher::WaitForFile(const std::string& place, int rank) const {
  const std::string path = Path(place + "." + std::to_string(rank));
  for (int waited_ms = 0; !std::filesystem::exists(path); ++waited_ms) {
    if (waited_ms > kDeadlineMs) Throw("deadline passed waiting for " + path);
    ::poll(nullptr, 0, 1);
  }
}

void FakeLauncher::WaitForFiles(const std::string& place) const {
  for (int rank = 0; rank < size(); ++rank) WaitForFile(place, rank);
}

void FakeLauncher::MakeFile(const std::string& name) const { std::ofstream(Path(name)) << name; }

std::string FakeLauncher::Proc(int rank, const std::string& file) const {
  return ReadFile("/proc/" + std::to_string(pid(rank)) + "/" + file);
}

long FakeLauncher::ResidentKb(int rank) const {
  const std::string status = Proc(rank, "status");
  return std::atol(status.substr(status.find("VmRSS:") + 6).c_str());
}

int FakeLauncher::OpenFiles(int rank) const {
  const std::filesystem::path folder = "/proc/" + std::to_string(pid(rank)) + "/fd";
  return static_cast<int>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

int FakeLauncher::Wait() {
  int status = 0;
  for (int waited_ms = 0; ::waitpid(job_, &status, WNOHANG) == 0; ++waited_ms) {
    if (waited_ms > kDeadlineMs) Throw("deadline passed waiting for the job's end");
    ::poll(nullptr, 0, 1);
  }
  job_ = 0;
  return ExitCode(status);
}

std::string FakeLauncher::Output() const { return ReadFile(Path("out")); }
std::string FakeLauncher::Errors() const { return ReadFile(Path("err")); }

void FakeLauncher::FinishWell(int rebuilds) {
  MakeFile("stop");
  const int code = Wait();
  if (code != 0) Throw("the job ended with " + std::to_string(code) + ": " + Errors());
  if (!Output().contains("rebuilds=" + std::to_string(rebuilds) + "\n"))
    Throw("not " + std::to_string(rebuilds) + " rebuilds: " + Output());
}

}  // namespace xmpi::rank
