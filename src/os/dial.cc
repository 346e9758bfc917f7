#include "os/dial.h"

#include <algorithm>
#include <format>
#include <optional>
#include <utility>

namespace xmpi::os {
namespace {

using asio::ip::tcp;
using Clock = std::chrono::steady_clock;
constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);

// What the attempts of one Dial share.
struct Race {
  explicit Race(const asio::any_io_executor& executor) : changed(executor) {}

  asio::steady_timer changed;  // cancelled whenever an attempt ends
  std::vector<tcp::socket::lowest_layer_type*> open;
  std::optional<Dialled> winner;
  std::vector<std::string> failures;
  bool all_refused = true;
  bool over = false;
};

// Registers an attempt's socket, so that the end of the race closes it.
class Entry {
 public:
  Entry(Race* race, TlsStream* stream) : race_(race), layer_(&stream->lowest_layer()) {
    race_->open.push_back(layer_);
  }
  ~Entry() { std::erase(race_->open, layer_); }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

 private:
  Race* race_;
  tcp::socket::lowest_layer_type* layer_;
};

asio::awaitable<Result<std::unique_ptr<TlsStream>>> Attempt(std::shared_ptr<Race> race, SSL* ssl,
                                                            std::string address, std::uint16_t port,
                                                            LinkTimeouts timeouts) {
  asio::error_code error;
  auto stream = std::make_unique<TlsStream>(tcp::socket(race->changed.get_executor()), ssl);
  const Entry entry(race.get(), stream.get());
  const auto ip = asio::ip::make_address(address, error);
  if (error) co_return Fail(std::format("'{}' is no IP address", address));
  tcp::socket& socket = stream->next_layer();
  std::tie(error) = co_await socket.async_connect(tcp::endpoint(ip, port), kNoThrow);
  if (error) co_return std::unexpected(StreamFailure(*stream, "connect", error));
  SetLinkOptions(socket, timeouts);
  std::tie(error) = co_await stream->async_handshake(asio::ssl::stream_base::client, kNoThrow);
  if (error) co_return std::unexpected(StreamFailure(*stream, "TLS handshake", error));
  auto identity = CheckPeer(ssl);
  if (!identity) co_return std::unexpected(identity.error());
  co_return stream;
}

asio::awaitable<void> Run(std::shared_ptr<Race> race, SSL* ssl, std::string address,
                          std::uint16_t port, LinkTimeouts timeouts) {
  auto stream = co_await Attempt(race, ssl, address, port, timeouts);
  if (race->over || race->winner) co_return;
  if (stream) {
    asio::error_code ignored;
    const auto local = (*stream)->lowest_layer().local_endpoint(ignored);
    race->winner = Dialled{std::move(*stream), address, AddressText(local.address())};
  } else {
    race->failures.push_back(std::format("{}: {}", address, stream.error().message));
    race->all_refused &= stream.error().code == ErrorCode::kRefused;
  }
  race->changed.cancel();
}

Error Describe(const Race& race, std::size_t attempts, std::uint16_t port) {
  std::string text = std::format("port {}", port);
  for (const auto& failure : race.failures) text += std::format("; {}", failure);
  const bool complete = race.failures.size() == attempts;
  if (!complete) text += "; no answer in time from the others";
  return {complete && race.all_refused ? ErrorCode::kRefused : ErrorCode::kUnreachable, text};
}

}  // namespace

asio::awaitable<Result<Dialled>> Dial(const TlsContext& tls, std::vector<std::string> addresses,
                                      std::uint16_t port, LinkTimeouts timeouts) {
  const auto executor = co_await asio::this_coro::executor;
  auto race = std::make_shared<Race>(executor);
  const auto deadline = Clock::now() + timeouts.handshake;
  std::size_t started = 0;
  auto next_start = Clock::now();
  while (!race->winner && race->failures.size() < addresses.size() && Clock::now() < deadline) {
    // A failure opens the way for the next address at once.
    const bool idle = race->failures.size() == started;
    if (started < addresses.size() && (idle || Clock::now() >= next_start)) {
      SSL* ssl = SSL_new(tls.native());
      if (ssl == nullptr) co_return std::unexpected(TlsFailure(nullptr, "TLS"));
      next_start = Clock::now() + timeouts.connect_stagger;
      asio::co_spawn(executor, Run(race, ssl, addresses[started++], port, timeouts),
                     asio::detached);
      continue;
    }
    race->changed.expires_at(started < addresses.size() ? std::min(next_start, deadline)
                                                        : deadline);
    co_await race->changed.async_wait(kNoThrow);
  }
  race->over = true;
  asio::error_code ignored;
  for (auto* layer : race->open) layer->close(ignored);
  if (race->winner) co_return std::move(*race->winner);
  co_return std::unexpected(Describe(*race, addresses.size(), port));
}

}  // namespace xmpi::os
