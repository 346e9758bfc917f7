// Image connections: dialled by the source, accepted by the candidate, each in a worker thread that
// may block, authenticated with the key of one candidate's attempt. StopSignal is how the event
// loop calls such a thread back from wherever it waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/limits.h"
#include "image/chunk.h"
#include "os/tls.h"
#include "os/tls_acceptor.h"
#include "os/tls_socket.h"

namespace xmpi::proxy {

class StopSignal {
 public:
  StopSignal();
  // From any thread; for good.
  void Stop();
  bool stopped() const;
  // Readable once stopped.
  int fd() const { return event_.get(); }
  // Waits until `fd` has `events` or `deadline` is over; kRefused once stopped, kTimeout too late.
  Result<> Wait(int fd, short events, std::chrono::steady_clock::time_point deadline) const;

  // Until then; kRefused once stopped.
  Result<> WaitUntil(std::chrono::steady_clock::time_point due) const;

  // While a Scope lives, Stop also aborts its socket.
  class Scope {
   public:
    Scope(StopSignal* stop, os::TlsSocket* socket);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    StopSignal* stop_;
  };

 private:
  Fd event_;
  std::mutex mutex_;
  os::TlsSocket* socket_ = nullptr;
};

// The addresses in order, each with the handshake's deadline. The Error says what each answered.
Result<os::TlsSocket> DialImagePort(const os::TlsContext& tls,
                                    const std::vector<std::string>& addresses, std::uint16_t port,
                                    const LinkTimeouts& timeouts, const StopSignal& stop);

// For peers that prove the key; both arguments must outlive it. Strangers are for LogStranger, and
// delay nobody.
os::TlsAcceptor ImageAcceptor(const os::TlsContext& tls, const Fd& listener,
                              const LinkTimeouts& timeouts);
void LogStranger(const Error& why);

// Another connection may end otherwise; but not one that has broken so often.
bool IsWorthAnother(const Error& error);
inline constexpr int kRedials = 3;

image::ReadAll ReadFrom(os::TlsSocket* socket);
image::WriteAll WriteTo(os::TlsSocket* socket);

}  // namespace xmpi::proxy
