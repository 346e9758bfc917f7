// transfer: the images go from the source's proxy to the candidate, memory to memory, each as soon
// as it is dumped: the files of an image over one TLS connection, control, and before them the
// memory over the lanes of a PagePipe. ImageSender is the source's end, ImageReceiver the
// candidate's; each has its own threads and tells the event loop through Post. Pre-copy is a part
// of the sender's beginning: it is connected when the memory of the running ranks has gone ahead.
// The sender is never silent for long; a connection that breaks, or falls silent, is made again and
// goes on where the receiver's images end. Destroying either ends its threads and frees its images.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
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
#include "image/page_store.h"
#include "image/source.h"
#include "os/key.h"
#include "os/net.h"
#include "os/tls.h"
#include "proxy/image_socket.h"
#include "proxy/page_pipe.h"
#include "proxy/precopy.h"
#include "proxy/progress_meter.h"
#include "wire/control.pb.h"

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
    unsigned lanes = 1;
    // Which pages the ranks have now; in the worker thread. Without it nothing goes ahead.
    std::function<Result<std::vector<PageJob>>()> scan = {};
    PrecopyLimits precopy = {};
    // How far it is, once a second; through Post.
    std::function<void(const wire::Progress&)> progress = {};
  };
  using Connected = std::function<void(Result<wire::Plan>)>;
  using Sent = std::function<void(Result<std::uint64_t> bytes)>;

  // Dials at once; `connected` runs once, with the preflight's refusal if there is one, or what the
  // pre-copy has learned; then after Finish `sent`, when the candidate has said that it holds every
  // image, or no connection to it could be kept.
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
  Result<wire::Plan> SendAhead(os::TlsSocket* socket);
  Result<> SendMemory(os::TlsSocket* socket, image::RankImage* image);
  PagePipe::Manner MannerOf(os::TlsSocket* socket);
  Result<> SendAll(os::TlsSocket* socket, const image::Holdings& held);
  // The image number `index` once it is there; nullptr when there will be none. Writes now and
  // then.
  Result<image::RankImage*> Await(std::size_t index, const image::WriteAll& write);

  os::TlsContext tls_;
  Options options_;
  Post post_;
  Connected connected_;
  Sent sent_;
  ProgressMeter meter_;
  PagePipe pipe_;            // uses tls_
  std::uint64_t bytes_ = 0;  // on the wire since the dump began
  bool corrupted_ = false;   // a fault point's doing

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<image::RankImage> images_;  // addresses of elements stay
  bool finished_ = false;
  StopSignal stop_;
  std::jthread thread_;  // last: it uses all of the above
};

// What is held of one rank: its image, and its memory.
struct HeldImage {
  image::RankImage image;
  std::shared_ptr<image::StoredPages> pages;
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
  // The source is lost: `done` runs as soon as the connection there is ends, if not before.
  void ExpectNobody();
  // Only after `done` without an error. What it gives shares the bytes that are held here.
  Result<HeldImage> Image(RankId rank) const;
  const std::string& NoteOf(RankId rank) const { return assembler_.ManifestOf(rank).note; }

 private:
  ImageReceiver(os::TlsContext tls, os::Listener listener, Options options, Post post, Done done);
  using Clock = std::chrono::steady_clock;
  struct Connection {  // with a thread of its own
    explicit Connection(os::TlsSocket accepted) : socket(std::move(accepted)) {}
    StopSignal stop;
    os::TlsSocket socket;
    std::atomic<bool> ended = false;
    std::jthread thread;  // last
  };

  void Run();
  void AcceptUntilSettled();
  void Serve(Connection& connection);
  Result<> ServeControl(Connection& connection);
  void Settle(Result<> result);
  void SettleLocked(Result<> result);  // with mutex_; the first result counts
  static std::unexpected<Error> SourceLost();

  os::TlsContext tls_;
  os::Listener listener_;
  Options options_;
  Post post_;
  Done done_;
  image::DirectoryStorage storage_;
  const std::shared_ptr<image::PageStore> store_;
  image::Assembler assembler_;
  std::mutex control_mutex_;       // held by the control connection that feeds the assembler
  std::mutex mutex_;               // of what follows
  Connection* control_ = nullptr;  // the newest
  std::optional<Clock::time_point> control_lost_at_;
  bool expect_nobody_ = false;
  std::optional<Result<>> settled_;
  std::list<Connection> connections_;
  std::atomic<bool> stopped_ = false;
  StopSignal no_more_;   // settled, or stopped
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace xmpi::proxy
