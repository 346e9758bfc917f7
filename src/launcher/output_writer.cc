#include "launcher/output_writer.h"

#include <poll.h>
#include <pthread.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <thread>

namespace xmpi::launcher {
namespace {

// A slow reader still lets go of the window in steps this large.
constexpr std::size_t kPieces = 64;
constexpr std::size_t kWriteBytes = 256u << 10;

void AwaitWritable(int fd) {
  pollfd wanted{.fd = fd, .events = POLLOUT, .revents = 0};
  poll(&wanted, 1, -1);
}

// Writes the first pieces of `queue`, beginning at byte `*offset` of the first. Returns how many
// pieces are done, or -1 with errno.
int WriteSome(int fd, const std::deque<std::string>& queue, std::size_t* offset) {
  std::array<iovec, kPieces> pieces;
  std::size_t count = 0;
  std::size_t total = 0;
  for (const std::string& bytes : queue) {
    if (count == kPieces || total >= kWriteBytes) break;
    const std::size_t skip = count == 0 ? *offset : 0;
    pieces[count++] = {const_cast<char*>(bytes.data()) + skip, bytes.size() - skip};
    total += bytes.size() - skip;
  }
  ssize_t written = writev(fd, pieces.data(), static_cast<int>(count));
  if (written < 0) return -1;
  int done = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (static_cast<std::size_t>(written) < pieces[i].iov_len) {
      *offset += static_cast<std::size_t>(written);
      return done;
    }
    written -= static_cast<ssize_t>(pieces[i].iov_len);
    *offset = 0;
    ++done;
  }
  return done;
}

}  // namespace

struct OutputWriter::State : std::enable_shared_from_this<State> {
  State(asio::io_context& loop, int fd) : loop(loop), fd(fd) {}

  void Run() {
    std::deque<std::string> taken;
    while (true) {
      {
        std::unique_lock lock(mutex);
        wanted.wait(lock, [&] { return !queue.empty() || stop; });
        if (queue.empty()) return;
        taken.swap(queue);
      }
      WriteAll(&taken);
    }
  }

  void WriteAll(std::deque<std::string>* taken) {
    std::size_t offset = 0;
    while (!taken->empty()) {
      const int done = dropping ? static_cast<int>(taken->size()) : WriteSome(fd, *taken, &offset);
      if (done < 0) {
        if (errno == EAGAIN) AwaitWritable(fd);
        if (errno == EAGAIN || errno == EINTR) continue;
        dropping = true;
        Tell([error = errno](State& state) { state.broken(error); });
        continue;
      }
      taken->erase(taken->begin(), taken->begin() + done);
      number += static_cast<std::uint64_t>(done);
      if (done > 0) Tell([up_to = number](State& state) { state.written(up_to); });
    }
  }

  template <class F>
  void Tell(F what) {
    const std::scoped_lock lock(mutex);
    if (stop) return;  // the loop may be gone
    asio::post(loop, [self = shared_from_this(), what] {
      if (!self->stop) what(*self);
    });
  }

  asio::io_context& loop;
  const int fd;
  std::function<void(std::uint64_t)> written;
  std::function<void(int)> broken;

  std::mutex mutex;
  std::condition_variable wanted;
  std::deque<std::string> queue;
  bool stop = false;  // set on the loop's thread

  std::uint64_t given = 0;   // the loop's
  std::uint64_t number = 0;  // the thread's
  bool dropping = false;     // the thread's
};

OutputWriter::OutputWriter(asio::io_context& loop, int fd,
                           std::function<void(std::uint64_t)> written,
                           std::function<void(int)> broken)
    : state_(std::make_shared<State>(loop, fd)) {
  state_->written = std::move(written);
  state_->broken = std::move(broken);
  // Signals are the loop's business.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([state = state_] { state->Run(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

OutputWriter::~OutputWriter() {
  const std::scoped_lock lock(state_->mutex);
  state_->stop = true;
  state_->wanted.notify_one();
}

std::uint64_t OutputWriter::Write(std::string bytes) {
  const std::scoped_lock lock(state_->mutex);
  state_->queue.push_back(std::move(bytes));
  state_->wanted.notify_one();
  return ++state_->given;
}

}  // namespace xmpi::launcher
