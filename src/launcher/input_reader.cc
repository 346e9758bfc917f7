#include "launcher/input_reader.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <thread>

#include "base/fd.h"

namespace xmpi::launcher {
namespace {

constexpr std::size_t kReadBytes = 32u << 10;
constexpr int kForegroundCheckMs = 200;

bool InBackground(int fd) {
  const pid_t front = tcgetpgrp(fd);
  return front >= 0 && front != getpgrp();
}

}  // namespace

struct InputReader::State : std::enable_shared_from_this<State> {
  State(asio::io_context& loop, int fd) : loop(loop), fd(fd) {}

  void Run() {
    std::string buffer(kReadBytes, '\0');
    while (const std::size_t room = AwaitInput()) {
      const ssize_t got = read(fd, buffer.data(), std::min(room, kReadBytes));
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got < 0 && errno == EIO && InBackground(fd)) continue;
      if (!Tell(got > 0 ? buffer.substr(0, static_cast<std::size_t>(got)) : "", got <= 0)) return;
    }
  }

  // Waits for both room and input. 0: stop.
  std::size_t AwaitInput() {
    while (true) {
      std::size_t room_now;
      {
        const std::scoped_lock lock(mutex);
        if (stop) return 0;
        room_now = room;
      }
      const bool held = room_now == 0 || InBackground(fd);
      pollfd wanted[2] = {{.fd = wake.get(), .events = POLLIN, .revents = 0},
                          {.fd = held ? -1 : fd, .events = POLLIN, .revents = 0}};
      poll(wanted, 2, room_now > 0 && held ? kForegroundCheckMs : -1);
      if (wanted[0].revents != 0) {
        eventfd_t count;
        eventfd_read(wake.get(), &count);
      }
      if (wanted[1].revents != 0) return room_now;
    }
  }

  bool Tell(std::string data, bool end) {
    const std::scoped_lock lock(mutex);
    if (stop) return false;
    room -= data.size();
    asio::post(loop, [self = shared_from_this(), data = std::move(data), end] {
      if (!self->stop) self->on_input(data, end);
    });
    return !end;
  }

  void Wake() { eventfd_write(wake.get(), 1); }

  asio::io_context& loop;
  const int fd;
  std::function<void(std::string, bool)> on_input;
  Fd wake{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

  std::mutex mutex;
  std::size_t room = 0;
  bool stop = false;  // set on the loop's thread
};

InputReader::InputReader(asio::io_context& loop, int fd,
                         std::function<void(std::string, bool)> on_input)
    : state_(std::make_shared<State>(loop, fd)) {
  state_->on_input = std::move(on_input);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([state = state_] { state->Run(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

InputReader::~InputReader() {
  {
    const std::scoped_lock lock(state_->mutex);
    state_->stop = true;
  }
  state_->Wake();
}

void InputReader::GiveRoom(std::size_t bytes) {
  {
    const std::scoped_lock lock(state_->mutex);
    state_->room += bytes;
  }
  state_->Wake();
}

}  // namespace xmpi::launcher
