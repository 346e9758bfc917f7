// The ranks' output on its way to ours: merged by line, written by OutputWriter, acknowledged to
// the proxy it came from when it is written. The link's window bounds what waits here, so a reader
// who stalls stops the ranks that write and nothing else.
//
// Runs on the loop. It owns our stdout and stderr for the life of the job: our own words go through
// Say. It never looks at a job's state.
#pragma once

#include <array>
#include <asio.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/ids.h"
#include "launcher/line_merger.h"
#include "launcher/output_writer.h"
#include "wire/control.pb.h"

namespace xmpi::launcher {

struct StdioEvents {
  std::function<void(ProxyId, std::size_t messages)> acknowledge;
  std::function<void(ProxyId)> drained;
  // Our stdout cannot be written any more (errno); what still comes is dropped.
  std::function<void(int error)> broken;
};

class Stdio {
 public:
  // `out` and `err` are our stdout and stderr, or stand for them.
  Stdio(asio::io_context& loop, int out, int err, bool label, StdioEvents events);

  void OnOutput(ProxyId from, wire::Output output);
  // The proxy has sent `bytes` of output in all; `drained` follows when they are all here.
  void OnDrained(ProxyId from, std::uint64_t bytes);

  // While on: what the proxy sends is acknowledged at once and kept here, whoever reads ours.
  void SetDraining(ProxyId proxy, bool on);

  // From now on everything is acknowledged at once, whoever reads ours; what goes past kKeptBytes
  // is dropped. For an end that cannot wait.
  void Hurry();
  static constexpr std::size_t kKeptBytes = 64u << 20;

  // A line of our own, on stderr.
  void Say(std::string line);
  // Lets go what waits for its newline; `done` when all is written, from the loop.
  void Finish(std::function<void()> done);

 private:
  struct Pending {  // a Write, and whom to thank for it
    std::uint64_t number;
    ProxyId proxy;
    std::uint64_t credit;  // Proxy::credit at the time; another one now: acknowledged already
    bool owed = false;
    std::size_t bytes = 0;
  };
  struct Output {
    explicit Output(bool label) : merger(label) {}
    LineMerger merger;
    std::shared_ptr<OutputWriter> writer;
    std::deque<Pending>* pending = nullptr;
  };
  struct Proxy {
    std::uint64_t received_bytes = 0;
    std::uint64_t drained_bytes = 0;
    bool drain_told = false;
    bool draining = false;
    std::uint64_t credit = 0;
    std::size_t owed = 0;  // messages whose bytes wait to be written
  };

  void OpenWriters(asio::io_context& loop, int out, int err);
  std::shared_ptr<OutputWriter> NewWriter(asio::io_context& loop, int fd, std::size_t queue);
  void Write(Output& output, std::string bytes, const ProxyId* from);
  void OnWritten(std::size_t queue, std::uint64_t number);
  void TellIfDrained(ProxyId id, Proxy& proxy);
  void StartTicking();
  void FinishIfWritten();

  StdioEvents events_;
  std::array<Output, 2> outputs_;               // stdout, stderr
  std::array<std::deque<Pending>, 2> pending_;  // by writer
  std::map<ProxyId, Proxy> proxies_;
  asio::steady_timer ticker_;
  bool ticking_ = false;
  std::size_t unwritten_bytes_ = 0;
  bool hurry_ = false;
  std::function<void()> finished_;
};

}  // namespace xmpi::launcher
