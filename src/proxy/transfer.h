// transfer: the images go from the source's proxy to the candidate over one TLS connection, memory
// to memory, each as soon as it is dumped. ImageSender is the source's end, ImageReceiver the
// candidate's; each has one worker thread and tells the event loop through Post. The sender is
// never silent for long; a connection that breaks, or falls silent, is made again and goes on where
// the receiver's images end. Destroying either ends its thread and frees its images.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/ids.h"
#include "base/limits.h"
#include "criu/checkpointer.h"
#include "image/assembler.h"
#include "image/directory_storage.h"
#include "image/manifest.h"
#include "image/source.h"
#include "os/key.h"
#include "os/net.h"
#include "os/tls.h"
#include "proxy/image_socket.h"

namespace xmpi::proxy {

using criu::Post;

// Whose images these are, and by which key both ends know each other.
struct TransferId {
  std::string job;
  ProxyId candidate;
};

class ImageSender {
 public:
  struct Options {
    TransferId id;
    std::vector<std::string> addresses;
    std::uint16_t port = 0;
    LinkTimeouts timeouts;
    // Preflight, in the worker thread: what the candidate is told and what its answer means; then
    // which files of the ranks it is asked for and what follows from what it sees. Without them
    // nothing is asked.
    std::function<std::string()> facts = {};
    std::function<Result<>(const std::string& findings)> judge = {};
    std::function<std::vector<image::HeldFile>()> held = {};
    std::function<Result<>(const std::vector<image::HeldFile>& held,
                           const std::vector<image::Seen>& sights)>
        judge_sights = {};
  };
  using Connected = std::function<void(Result<>)>;
  using Sent = std::function<void(Result<std::uint64_t> bytes)>;

  // Dials at once; `connected` runs once, with the preflight's refusal if there is one; then after
  // Finish `sent`, when the candidate has said
  // that it holds every image, or no connection to it could be kept.
  static Result<std::unique_ptr<ImageSender>> Start(const os::Secret& secret, Options options,
                                                    Post post, Connected connected, Sent sent);
  ~ImageSender();

  // Goes out as soon as those before it have; kept until this object dies.
  void Add(image::RankImage image);
  // No image follows.
  void Finish();

  AttemptId attempt() const { return options_.id.candidate.attempt; }

 private:
  ImageSender(os::TlsContext tls, Options options, Post post, Connected connected, Sent sent);
  void Run();
  Result<> RunConnection();
  Result<> Ask(os::TlsSocket* socket);
  Result<> SendAll(os::TlsSocket* socket, const image::Holdings& held);
  // The image number `index` once it is there; nullptr when there will be none. Writes now and
  // then.
  Result<image::RankImage*> Await(std::size_t index, const image::WriteAll& write);

  os::TlsContext tls_;
  Options options_;
  Post post_;
  Connected connected_;
  Sent sent_;
  std::uint64_t bytes_ = 0;
  bool corrupted_ = false;  // a fault point's doing

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<image::RankImage> images_;  // addresses of elements stay
  bool finished_ = false;
  StopSignal stop_;
  std::jthread thread_;  // last: it uses all of the above
};

class ImageReceiver {
 public:
  struct Options {
    TransferId id;
    std::string address;  // of the one interface that is listened on
    os::PortRange ports;
    std::vector<RankId> ranks;
    std::uint64_t limit_bytes = 0;  // of all images together
    LinkTimeouts timeouts;
    image::Answers answers = {};  // in the worker thread
  };
  using Done = std::function<void(Result<std::uint64_t> bytes)>;

  // Listens at once; `done` runs once, when every image is here and verified, or cannot come.
  static Result<std::unique_ptr<ImageReceiver>> Start(const os::Secret& secret, Options options,
                                                      Post post, Done done);
  ~ImageReceiver();

  std::uint16_t port() const { return listener_.port; }
  // Only after `done` without an error. What it gives shares the bytes that are held here.
  Result<image::RankImage> Image(RankId rank) const;
  const std::string& NoteOf(RankId rank) const { return assembler_.ManifestOf(rank).note; }

 private:
  ImageReceiver(os::TlsContext tls, os::Listener listener, Options options, Post post, Done done);
  void Run();
  Result<> RunConnection();

  os::TlsContext tls_;
  os::Listener listener_;
  Options options_;
  Post post_;
  Done done_;
  image::DirectoryStorage storage_;
  image::Assembler assembler_;
  bool had_peer_ = false;
  StopSignal stop_;
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace xmpi::proxy
