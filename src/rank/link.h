// The rank's end of the control socket (XMPI_FD): one packet in, one packet out, with the ids that
// the proxy last used echoed in every packet. It decides nothing. The handler's functions are
// async-signal-safe; they and the others share one buffer, which is sound because both run on the
// one thread, the others with the signal blocked. The descriptor stays open until the process ends.
#pragma once

#include "wire/rank_link.h"

namespace xmpi::rank {

class Link {
 public:
  enum class Got {
    kMessage,
    kNothing,
    kLeft,  // something is there that the handler must leave to the slow path
    kClosed,
  };

  // Takes the descriptor named by XMPI_FD. False without one (no launcher of ours), or with one
  // that is no control socket, which is said once.
  bool Attach();
  // From now on nothing is read or written: the rank is finalizing.
  void Detach() { fd_ = -1; }
  bool attached() const { return fd_ >= 0; }

  // The next packet, if one is there. Malformed ones are said and skipped.
  Got ReceiveNow(rank_link::Message* message);
  // Waits for it, without any deadline of its own: a parked rank has nothing else to do.
  Got ReceiveBlocking(rank_link::Message* message);
  // In the signal handler: only notice, agree and cancel, which may come while the rank computes;
  // anything else stays for the slow path.
  Got ReceiveInHandler(rank_link::Message* message);

  // False when the proxy is gone.
  bool Send(rank_link::Message message);
  // In the signal handler: never waits; false when the socket is full (or the proxy gone).
  bool SendInHandler(rank_link::Message message);

  // Waits at most `timeout_ms` for a packet.
  void Poll(int timeout_ms) const;

 private:
  Got Receive(int flags, rank_link::Message* message);
  bool Take(std::size_t size, rank_link::Message* message, const char** fault);
  bool Send(rank_link::Message message, int flags);

  int fd_ = -1;
  SlotId slot_ = 0;
  Epoch epoch_ = 0;
  AttemptId attempt_ = 0;
  char in_[rank_link::kMessageLimit];
};

}  // namespace xmpi::rank
