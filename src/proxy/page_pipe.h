// PagePipe: the source's lanes to one candidate: a TLS connection and a thread each, over which the
// ranks' memory goes page by page. A pass sends of the given processes what the candidate does not
// hold yet; it may be asked for while the ranks run, and is once they are stopped. A lane whose
// connection breaks dials again and sends what did not arrive. Owns the connections, which it opens
// with the first pass, and what is known of the candidate's pages; nobody's memory.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "image/page_lane.h"
#include "image/pages.h"
#include "os/tls.h"
#include "os/tls_socket.h"
#include "proxy/image_socket.h"
#include "proxy/pace.h"

namespace xmpi::proxy {

// One process's pages that are to be looked through.
struct PageJob {
  RankId rank = 0;
  pid_t pid = 0;
  std::shared_ptr<image::PageSource> source;
  std::vector<image::PageRun> runs;
};
std::uint64_t BytesOf(const PageJob& job);

class PagePipe {
 public:
  struct Options {
    image::StreamId stream;
    std::vector<std::string> addresses;
    std::uint16_t port = 0;
    LinkTimeouts timeouts;
    unsigned lanes = 1;
  };
  struct Manner {
    Pace* pace = nullptr;  // as fast as it goes without one
    int nice = 0;          // of the threads that do the work
    // On the caller's thread, once a second while the pass lasts; an error calls it off.
    std::function<Result<>()> pulse = {};
    // On the lanes' threads: so many bytes of this rank were looked at.
    std::function<void(RankId rank, std::uint64_t bytes)> looked = {};
  };

  // `tls` must outlive this.
  PagePipe(const os::TlsContext& tls, Options options);
  ~PagePipe();

  // Returns when the candidate has taken in what differed. Blocks; one pass at a time.
  Result<image::PassStats> Pass(std::span<const PageJob> jobs, const Manner& manner);
  // Between passes, at least every kImagePulse: a candidate takes silence for the end.
  void Pulse();
  // What the last pass over these runs has read; nothing when there was none.
  std::optional<image::Hash128> Digest(RankId rank, pid_t pid,
                                       std::span<const image::PageRun> runs) const;
  // From any thread, for good: a pass that is under way ends with kRefused.
  void Stop();

 private:
  struct Lane;
  struct Work;

  void RunLane(Lane& lane, Work& work);
  Result<> SendJobs(Lane& lane, Work& work);
  Result<> SendOnce(Lane& lane, Work& work);
  Result<> Connect(Lane& lane);

  const os::TlsContext& tls_;
  const Options options_;
  std::vector<std::unique_ptr<image::PageLane>> known_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace xmpi::proxy
