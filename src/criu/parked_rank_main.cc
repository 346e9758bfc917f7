// A program that looks like a parked rank, for the tests: it holds what ranks hold (a control
// socket on 7, a PMI socket on 5, pipes as standard streams, a thread, a forked helper, timers,
// patterned memory) and answers questions on its control socket, one datagram each.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <format>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kControl = 7, kPmi = 5;
std::atomic<long> alarms{0}, ticks{0};

// Pattern of word i, different everywhere, so that a page in the wrong place shows.
std::uint64_t Pattern(std::uint64_t i) { return i * 0x9e3779b97f4a7c15u + 17; }

struct Memory {
  explicit Memory(std::size_t bytes, int flags) : count(bytes / 8) {
    words = static_cast<std::uint64_t*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0));
    for (std::size_t i = 0; i < count; ++i) words[i] = Pattern(i);
  }
  bool Holds() const {
    for (std::size_t i = 0; i < count; ++i) {
      if (words[i] != Pattern(i)) return false;
    }
    return true;
  }
  std::size_t count;
  std::uint64_t* words;
};

// The helper child answers each byte with its successor over a socketpair inside the rank.
pid_t StartHelper(int* socket_fd) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) std::abort();
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    for (char byte; read(ends[1], &byte, 1) == 1;) {
      ++byte;
      if (write(ends[1], &byte, 1) != 1) break;
    }
    _exit(3);
  }
  close(ends[1]);
  *socket_fd = ends[0];
  return pid;
}

double Now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

bool HelperAnswers(int socket_fd) {
  char byte = 'a';
  return write(socket_fd, &byte, 1) == 1 && read(socket_fd, &byte, 1) == 1 && byte == 'b';
}

// Waits until the thread and the interval timer have gone on; true when they do.
bool TimeGoesOn() {
  const long alarm = alarms, tick = ticks;
  for (const double end = Now() + 20; Now() < end;) {
    if (alarms > alarm && ticks > tick) return true;
    timespec nap{0, 1'000'000};
    nanosleep(&nap, nullptr);
  }
  return false;
}

std::string ReadInput(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t at = 0; at < size;) {
    const ssize_t got = read(0, text.data() + at, size - at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text.substr(0, at);
    at += static_cast<std::size_t>(got);
  }
  return text;
}

std::string AskPmi() {
  std::array<char, 64> buffer;
  if (write(kPmi, "ping\n", 5) != 5) return "pmi write failed";
  const ssize_t size = read(kPmi, buffer.data(), buffer.size());
  return size > 0 ? std::string(buffer.data(), static_cast<std::size_t>(size)) : "pmi read failed";
}

// A connected TCP pair, which CRIU refuses to dump.
std::string HoldTcp() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0), peer = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener, generic, size) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, generic, &size) != 0 || connect(peer, generic, size) != 0) {
    return std::strerror(errno);
  }
  return accept(listener, nullptr, nullptr) >= 0 ? "holding" : std::strerror(errno);
}

// A process that leaves the rank's tree by having its parent end.
std::string StartDaemon() {
  const pid_t between = fork();
  if (between == 0) {
    const pid_t daemon = fork();
    if (daemon == 0) {
      setsid();
      for (;;) pause();
    }
    _exit(daemon > 0 ? 0 : 1);
  }
  int status = 1;
  return waitpid(between, &status, 0) == between && status == 0 ? "started" : "not started";
}

class Rank {
 public:
  Rank(std::size_t bytes) : private_memory_(bytes, MAP_PRIVATE), shared_memory_(bytes, MAP_SHARED) {
    helper_ = StartHelper(&helper_fd_);
    thread_ = std::thread([] {
      for (;;) {
        timespec nap{0, 2'000'000};
        nanosleep(&nap, nullptr);
        ++ticks;
      }
    });
    thread_.detach();
    struct sigaction action{};
    action.sa_handler = [](int) { ++alarms; };
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, nullptr);
    const itimerval interval{{0, 5000}, {0, 5000}};
    setitimer(ITIMER_REAL, &interval, nullptr);
    char name[] = "/tmp/parked-XXXXXX";
    deleted_ = mkstemp(name);
    unlink(name);
    if (write(deleted_, "kept", 4) != 4) std::abort();
  }

  std::string Answer(const std::string& question) {
    if (question == "state") return State();
    if (question == "pmi") return AskPmi();
    if (question == "tcp") return HoldTcp();
    if (question == "daemon") return StartDaemon();
    if (question.starts_with("stdin ")) return ReadInput(std::stoul(question.substr(6)));
    if (question.starts_with("say ")) {
      const std::string line = question.substr(4) + "\n";
      return write(1, line.data(), line.size()) > 0 ? "said" : std::strerror(errno);
    }
    if (question.starts_with("exit ")) std::exit(std::stoi(question.substr(5)));
    return "?";
  }

 private:
  std::string State() {
    std::array<char, 8> kept{};
    const bool file =
        pread(deleted_, kept.data(), kept.size(), 0) == 4 && std::string(kept.data()) == "kept";
    return std::format(
        "pid={} helper={} memory={} shared={} helper_answers={} time_goes_on={} "
        "deleted_file={} now={:.6f}",
        getpid(), helper_, private_memory_.Holds(), shared_memory_.Holds(),
        HelperAnswers(helper_fd_), TimeGoesOn(), file, Now());
  }

  Memory private_memory_, shared_memory_;
  pid_t helper_ = 0;
  int helper_fd_ = -1;
  int deleted_ = -1;
  std::thread thread_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::size_t mebibytes = argc > 1 ? std::stoul(argv[1]) : 8;
  Rank rank(mebibytes << 20);
  std::vector<char> buffer(8192);
  for (;;) {
    const ssize_t size = recv(kControl, buffer.data(), buffer.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return 0;
    const std::string answer =
        rank.Answer(std::string(buffer.data(), static_cast<std::size_t>(size)));
    if (send(kControl, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return 1;
  }
}
