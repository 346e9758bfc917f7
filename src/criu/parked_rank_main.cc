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

#include <algorithm>
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
constexpr std::size_t kPageWords = 4096 / sizeof(std::uint64_t);
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
  // A piece of it from a page on, for those who change its mapping.
  std::uint64_t* Page(std::size_t page) const { return words + page * kPageWords; }
  std::size_t pages() const { return count / kPageWords; }
  void Write(std::size_t page, std::size_t pages) const {
    for (std::size_t i = page * kPageWords; i < (page + pages) * kPageWords; ++i)
      words[i] = Pattern(i);
  }
  std::size_t count;
  std::uint64_t* words;
};

bool IsZero(const std::uint64_t* words, std::size_t pages) {
  return std::all_of(words, words + pages * kPageWords, [](std::uint64_t w) { return w == 0; });
}

// The helper child answers each byte with its successor over a socketpair inside the rank, and 'm'
// with whether it has its memory.
pid_t StartHelper(const Memory& memory, int* socket_fd) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) std::abort();
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    for (char byte; read(ends[1], &byte, 1) == 1;) {
      if (byte == 'm') {
        byte = memory.Holds() ? 'y' : 'n';
      } else {
        ++byte;
      }
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

bool HelperAnswers(int socket_fd, char question, char answer) {
  return write(socket_fd, &question, 1) == 1 && read(socket_fd, &question, 1) == 1 &&
         question == answer;
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
  explicit Rank(std::size_t bytes)
      : private_memory_(bytes, MAP_PRIVATE),
        shared_memory_(std::min<std::size_t>(bytes, 4u << 20), MAP_SHARED) {
    helper_ = StartHelper(private_memory_, &helper_fd_);
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
    if (question == "fork") return Fork() ? "right" : "wrong";
    if (question == "remap") return Remap() ? "right" : "wrong";
    if (question == "dontneed") return DoWithout() ? "right" : "wrong";
    if (question == "unmap") return Unmap() ? "right" : "wrong";
    if (question == "scan") return Scan();
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
  // Both look at all of it.
  bool Fork() const {
    const pid_t child = fork();
    if (child == 0) _exit(private_memory_.Holds() ? 0 : 1);
    const bool holds = private_memory_.Holds();
    int status = 1;
    return waitpid(child, &status, 0) == child && status == 0 && holds;
  }
  // The second half goes elsewhere and is right there; then it comes back. Where it was is empty.
  bool Remap() const {
    const std::size_t half = private_memory_.pages() / 2, bytes = half * 4096;
    std::uint64_t* here = private_memory_.Page(private_memory_.pages() - half);
    const std::size_t first = static_cast<std::size_t>(here - private_memory_.words);
    void* there = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    there = mremap(here, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, there);
    if (there == MAP_FAILED) return false;
    const auto* words = static_cast<const std::uint64_t*>(there);
    bool right = true;
    for (std::size_t i = 0; i < half / 2 * kPageWords; ++i) right &= words[i] == Pattern(first + i);
    if (mmap(here, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
      return false;
    right &= IsZero(here, half);
    return mremap(there, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, here) != MAP_FAILED && right;
  }
  // Every other 16 pages of the first half.
  bool DoWithout() const {
    bool right = true;
    for (std::size_t page = 0; page + 16 <= private_memory_.pages() / 2; page += 32) {
      right &= madvise(private_memory_.Page(page), 16 * 4096, MADV_DONTNEED) == 0 &&
               IsZero(private_memory_.Page(page), 16);
      private_memory_.Write(page, 16);
    }
    return right;
  }
  bool Unmap() const {
    bool right = true;
    for (std::size_t page = 16; page + 16 <= private_memory_.pages(); page += 64) {
      std::uint64_t* words = private_memory_.Page(page);
      right &= munmap(words, 16 * 4096) == 0 &&
               mmap(words, 16 * 4096, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == words &&
               IsZero(words, 16);
      private_memory_.Write(page, 16);
    }
    return right;
  }
  // Says on stdout what is wrong as soon as it sees it.
  std::string Scan() const {
    for (std::size_t i = 0; i < private_memory_.count; ++i) {
      if (private_memory_.words[i] == Pattern(i)) continue;
      return write(1, "wrong\n", 6) == 6 ? "wrong" : "";
    }
    return "right";
  }

  std::string State() {
    std::array<char, 8> kept{};
    const bool file =
        pread(deleted_, kept.data(), kept.size(), 0) == 4 && std::string(kept.data()) == "kept";
    return std::format(
        "pid={} helper={} memory={} shared={} helper_memory={} helper_answers={} time_goes_on={} "
        "deleted_file={} now={:.6f}",
        getpid(), helper_, private_memory_.Holds(), shared_memory_.Holds(),
        HelperAnswers(helper_fd_, 'm', 'y'), HelperAnswers(helper_fd_, 'a', 'b'), TimeGoesOn(),
        file, Now());
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
