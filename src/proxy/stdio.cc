#include "proxy/stdio.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/limits.h"

namespace xmpi::proxy {
namespace {

// A stream that always has something must not keep the others and the control messages waiting.
constexpr int kReadsInARow = 4;

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK; }

}  // namespace

OutputRelay::OutputRelay(asio::io_context& loop, OutputSink sink)
    : loop_(loop), sink_(std::move(sink)), buffer_(limits::kStdioMessageBytes) {}

OutputRelay::~OutputRelay() {
  for (const auto& stream : streams_) stream->pipe.close();
}

void OutputRelay::Add(RankId rank, std::uint32_t number, Fd pipe) {
  streams_.push_back(std::make_shared<Stream>(loop_, rank, number, std::move(pipe)));
  AwaitReadable(streams_.back());
}

void OutputRelay::AwaitReadable(const std::shared_ptr<Stream>& stream) {
  if (stream->waiting) return;
  stream->waiting = true;
  stream->pipe.async_wait(asio::posix::stream_descriptor::wait_read,
                          [this, stream](const asio::error_code& error) {
                            if (error) return;  // closed, and this may be gone
                            stream->waiting = false;
                            Pump(stream);
                          });
}

void OutputRelay::Pump(const std::shared_ptr<Stream>& stream) {
  for (int reads = 0; reads < kReadsInARow && stream->pipe.is_open(); ++reads) {
    stream->blocked = sink_.room() <= 0;
    if (stream->blocked) return;
    const ssize_t size = read(stream->pipe.native_handle(), buffer_.data(), buffer_.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && WouldBlock()) {
      OnEmpty(stream.get());
      break;
    }
    if (size <= 0) return OnEnd(stream);
    bytes_sent_ += static_cast<std::uint64_t>(size);
    sink_.send(stream->rank, stream->number, {buffer_.data(), static_cast<std::size_t>(size)});
  }
  if (stream->pipe.is_open()) AwaitReadable(stream);
}

void OutputRelay::OnEnd(const std::shared_ptr<Stream>& stream) {
  const auto kept = stream;
  stream->pipe.close();
  std::erase(streams_, kept);
  if (tell_ends_) sink_.send(kept->rank, kept->number, {});
  OnEmpty(kept.get());
}

void OutputRelay::OnRoom() {
  const auto streams = streams_;
  for (const auto& stream : streams) {
    if (stream->blocked) Pump(stream);
  }
}

void OutputRelay::OnEmpty(Stream* stream) {
  std::vector<std::function<void()>> done;
  for (auto request = drains_.begin(); request != drains_.end();) {
    std::erase(request->full, stream);
    if (!request->full.empty()) {
      ++request;
      continue;
    }
    done.push_back(std::move(request->done));
    request = drains_.erase(request);
  }
  for (const auto& each : done) each();
}

void OutputRelay::Drain(RankId rank, std::function<void()> done) {
  std::vector<std::shared_ptr<Stream>> streams;
  std::ranges::copy_if(streams_, std::back_inserter(streams),
                       [rank](const auto& stream) { return stream->rank == rank; });
  StartDrain(std::move(streams), std::move(done));
}

void OutputRelay::DrainAll(std::function<void()> done) { StartDrain(streams_, std::move(done)); }

void OutputRelay::StartDrain(std::vector<std::shared_ptr<Stream>> streams,
                             std::function<void()> done) {
  if (streams.empty()) return done();
  DrainRequest request{{}, std::move(done)};
  for (const auto& stream : streams) request.full.push_back(stream.get());
  drains_.push_back(std::move(request));
  for (const auto& stream : streams) {
    if (stream->pipe.is_open()) Pump(stream);
  }
}

void OutputRelay::Close() {
  for (const auto& stream : std::exchange(streams_, {})) {
    stream->pipe.close();
    if (tell_ends_) sink_.send(stream->rank, stream->number, {});
  }
}

void OutputRelay::Forget() {
  for (const auto& stream : std::exchange(streams_, {})) stream->pipe.close();
  drains_.clear();
}

InputFeed::InputFeed(asio::io_context& loop, std::function<void(std::uint64_t)> taken)
    : pipe_(loop), taken_(std::move(taken)) {}

InputFeed::~InputFeed() { *alive_ = false; }

void InputFeed::Open(Fd pipe) {
  pipe_.assign(pipe.Release());
  Flush();
}

void InputFeed::Feed(std::string_view data, bool end) {
  if (ended_) return;
  held_.append(data);
  ended_ = end;
  Flush();
}

void InputFeed::Resume() {
  paused_ = false;
  Flush();
}

void InputFeed::Flush() {
  if (paused_ || awaiting_writable_ || !pipe_.is_open()) return;
  while (!held().empty()) {
    const ssize_t size = write(pipe_.native_handle(), held().data(), held().size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && WouldBlock()) break;
    if (size < 0) return Drop();
    written_ += static_cast<std::size_t>(size);
    taken_(static_cast<std::uint64_t>(size));
  }
  if (held().empty()) {
    held_.clear();
    written_ = 0;
    if (ended_) pipe_.close();
    return;
  }
  awaiting_writable_ = true;
  pipe_.async_wait(asio::posix::stream_descriptor::wait_write,
                   [this, alive = alive_](const asio::error_code& error) {
                     if (!*alive) return;
                     awaiting_writable_ = false;
                     if (!error) Flush();
                   });
}

void InputFeed::Forget() {
  pipe_.close();
  held_.clear();
  written_ = 0;
  ended_ = false;
}

// The rank has closed its standard input: what is left has no reader.
void InputFeed::Drop() {
  if (!held().empty()) taken_(held().size());
  held_.clear();
  written_ = 0;
}

}  // namespace xmpi::proxy
