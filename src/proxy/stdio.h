// The ranks' standard streams between their pipes and the link. OutputRelay reads stdout and stderr
// as fast as the link's window allows and no faster: a full window stops the ranks, never the
// control messages. InputFeed writes standard input to the one rank that takes it. Both own the
// proxy's ends of the pipes, run on the event loop, and know nothing of a migration but Drain and
// Pause.
#pragma once

#include <asio.hpp>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/ids.h"

namespace xmpi::proxy {

// Where output goes: the link, under its window.
struct OutputSink {
  std::function<std::int64_t()> room;  // at 0 or less nothing is read
  // An empty `data` is the end of the stream. `stream`: 1 stdout, 2 stderr.
  std::function<void(RankId rank, std::uint32_t stream, std::string_view data)> send;
};

class OutputRelay {
 public:
  OutputRelay(asio::io_context& loop, OutputSink sink);
  ~OutputRelay();

  void Add(RankId rank, std::uint32_t stream, Fd pipe);
  // There is room again.
  void OnRoom();
  // `done` runs when all that is in the rank's pipes now has been sent, at once if nothing is.
  void Drain(RankId rank, std::function<void()> done);
  void DrainAll(std::function<void()> done);
  // From now on an end of a pipe is not told: the streams go on elsewhere (or, true: here again).
  void TellEnds(bool tell) { tell_ends_ = tell; }
  // Tells the end of every stream that is still open; nothing is read after.
  void Close();
  // Drops all streams, and who waits for them, without a word: copies that never ran.
  void Forget();

  // Every stream has come to its end.
  bool empty() const { return streams_.empty(); }
  std::uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  struct Stream {
    Stream(asio::io_context& loop, RankId rank, std::uint32_t number, Fd pipe)
        : rank(rank), number(number), pipe(loop, pipe.Release()) {}
    RankId rank;
    std::uint32_t number;
    asio::posix::stream_descriptor pipe;
    bool waiting = false;
    bool blocked = false;  // for lack of room
  };
  struct DrainRequest {
    std::vector<Stream*> full;  // not yet seen empty
    std::function<void()> done;
  };

  void Pump(const std::shared_ptr<Stream>& stream);
  void AwaitReadable(const std::shared_ptr<Stream>& stream);
  void OnEmpty(Stream* stream);
  void OnEnd(const std::shared_ptr<Stream>& stream);
  void StartDrain(std::vector<std::shared_ptr<Stream>> streams, std::function<void()> done);

  asio::io_context& loop_;
  OutputSink sink_;
  std::vector<std::shared_ptr<Stream>> streams_;
  std::list<DrainRequest> drains_;
  std::vector<char> buffer_;
  std::uint64_t bytes_sent_ = 0;
  bool tell_ends_ = true;
};

class InputFeed {
 public:
  // `taken` hears of every byte once it is in the pipe, or has nobody left to read it.
  InputFeed(asio::io_context& loop, std::function<void(std::uint64_t bytes)> taken);
  ~InputFeed();

  void Open(Fd pipe);
  void Feed(std::string_view data, bool end);
  // At a dump: nothing more is written. What is held here must travel with the rank.
  void Pause() { paused_ = true; }
  void Resume();
  // As new: the pipe, and what is held for it, belonged to a copy that never ran.
  void Forget();
  std::string_view held() const { return std::string_view(held_).substr(written_); }
  bool ended() const { return ended_; }

 private:
  void Flush();
  void Drop();

  asio::posix::stream_descriptor pipe_;
  std::function<void(std::uint64_t)> taken_;
  std::string held_;
  std::size_t written_ = 0;  // of held_
  bool ended_ = false;
  bool paused_ = false;
  bool awaiting_writable_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace xmpi::proxy
