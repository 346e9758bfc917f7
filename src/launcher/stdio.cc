#include "launcher/stdio.h"

#include <sys/stat.h>

#include <chrono>

#include "base/limits.h"

namespace xmpi::launcher {
namespace {

// Two writers to one pipe could mix within a line.
bool SameFile(int a, int b) {
  struct stat first{}, second{};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace

Stdio::Stdio(asio::io_context& loop, int out, int err, bool label, StdioEvents events)
    : events_(std::move(events)), outputs_{Output(label), Output(label)}, ticker_(loop) {
  OpenWriters(loop, out, err);
}

void Stdio::OpenWriters(asio::io_context& loop, int out, int err) {
  const bool shared = SameFile(out, err);
  outputs_[0].writer = NewWriter(loop, out, 0);
  outputs_[0].pending = &pending_[0];
  outputs_[1].writer = shared ? outputs_[0].writer : NewWriter(loop, err, 1);
  outputs_[1].pending = shared ? &pending_[0] : &pending_[1];
}

std::shared_ptr<OutputWriter> Stdio::NewWriter(asio::io_context& loop, int fd, std::size_t queue) {
  return std::make_shared<OutputWriter>(
      loop, fd, [this, queue](std::uint64_t number) { OnWritten(queue, number); },
      [this, queue](int error) {
        if (queue == 0) events_.broken(error);
      });
}

void Stdio::OnOutput(ProxyId from, wire::Output message) {
  Proxy& proxy = proxies_[from];
  const std::string& data = message.data();
  proxy.received_bytes += data.size();
  Output& output = outputs_[message.stream() == 2 ? 1 : 0];
  std::string ready;
  if (data.empty()) {
    output.merger.End(message.rank(), &ready);
  } else {
    output.merger.Add(message.rank(), data, &ready);
  }
  if (output.merger.WantsTick()) StartTicking();
  // What only waits for its newline is bounded by LineMerger and need not hold up the window.
  if (hurry_ && unwritten_bytes_ > kKeptBytes) ready.clear();
  const bool owed = !ready.empty() && !proxy.draining && !hurry_;
  if (!ready.empty()) Write(output, std::move(ready), owed ? &from : nullptr);
  if (!owed) events_.acknowledge(from, 1);
  TellIfDrained(from, proxy);
}

void Stdio::OnDrained(ProxyId from, std::uint64_t bytes) {
  Proxy& proxy = proxies_[from];
  proxy.drain_told = true;
  proxy.drained_bytes = bytes;
  TellIfDrained(from, proxy);
}

void Stdio::TellIfDrained(ProxyId id, Proxy& proxy) {
  if (!proxy.drain_told || proxy.received_bytes < proxy.drained_bytes) return;
  proxy.drain_told = false;
  events_.drained(id);
}

void Stdio::SetDraining(ProxyId id, bool on) {
  Proxy& proxy = proxies_[id];
  proxy.draining = on;
  if (!on || proxy.owed == 0) return;
  ++proxy.credit;
  events_.acknowledge(id, std::exchange(proxy.owed, 0));
}

void Stdio::Hurry() {
  hurry_ = true;
  for (auto& [id, proxy] : proxies_) SetDraining(id, true);
}

void Stdio::Say(std::string line) {
  line += '\n';
  Write(outputs_[1], std::move(line), nullptr);
}

void Stdio::Write(Output& output, std::string bytes, const ProxyId* from) {
  const std::size_t size = bytes.size();
  unwritten_bytes_ += size;
  Pending pending{
      .number = output.writer->Write(std::move(bytes)), .proxy = {}, .credit = 0, .bytes = size};
  if (from != nullptr) {
    Proxy& proxy = proxies_[*from];
    ++proxy.owed;
    pending.proxy = *from;
    pending.credit = proxy.credit;
    pending.owed = true;
  }
  output.pending->push_back(pending);
}

void Stdio::OnWritten(std::size_t queue, std::uint64_t number) {
  std::deque<Pending>& pending = pending_[queue];
  std::map<ProxyId, std::size_t> thanks;
  while (!pending.empty() && pending.front().number <= number) {
    const Pending done = pending.front();
    pending.pop_front();
    unwritten_bytes_ -= done.bytes;
    if (!done.owed) continue;
    Proxy& proxy = proxies_[done.proxy];
    if (done.credit != proxy.credit) continue;
    --proxy.owed;
    ++thanks[done.proxy];
  }
  for (const auto& [proxy, messages] : thanks) events_.acknowledge(proxy, messages);
  FinishIfWritten();
}

void Stdio::StartTicking() {
  if (ticking_) return;
  ticking_ = true;
  ticker_.expires_after(limits::kUnfinishedLineTick);
  ticker_.async_wait([this](std::error_code error) {
    if (error) return;
    ticking_ = false;
    for (Output& output : outputs_) {
      std::string ready;
      output.merger.Tick(&ready);
      if (!ready.empty()) Write(output, std::move(ready), nullptr);
      if (output.merger.WantsTick()) StartTicking();
    }
  });
}

void Stdio::Finish(std::function<void()> done) {
  finished_ = std::move(done);
  ticker_.cancel();
  for (Output& output : outputs_) {
    std::string rest;
    output.merger.EndAll(&rest);
    if (!rest.empty()) Write(output, std::move(rest), nullptr);
  }
  FinishIfWritten();
}

void Stdio::FinishIfWritten() {
  if (!finished_ || !pending_[0].empty() || !pending_[1].empty()) return;
  std::exchange(finished_, nullptr)();
}

}  // namespace xmpi::launcher
