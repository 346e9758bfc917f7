// Dials a peer that has several addresses, of which some may lead nowhere or to another host: the
// connects run side by side, each a little after the one before, and the first one that has
// proved the key wins. Internal to src/os.
#pragma once

#include <asio.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/limits.h"
#include "os/link.h"
#include "os/tls.h"

namespace xmpi::os {

struct Dialled {
  std::unique_ptr<TlsStream> stream;
  std::string address;  // the peer's
  std::string local;    // ours, on this connection
};

// Fails with kRefused when every address refused (nobody listens, or the key is not accepted):
// then there is no point in trying again. The Error lists what each address said.
asio::awaitable<Result<Dialled>> Dial(const TlsContext& tls, std::vector<std::string> addresses,
                                      std::uint16_t port, LinkTimeouts timeouts);

}  // namespace xmpi::os
