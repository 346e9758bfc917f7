// What the tests of links share: both ends on one loop, and a relay between them that can be
// frozen, cut and listened to. Waiting is always for an event, with a generous deadline.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <asio.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "os/link_client.h"
#include "os/link_server.h"

namespace xmpi::os::testing {

using namespace std::chrono_literals;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

inline bool RunUntil(asio::io_context& loop, const std::function<bool()>& done,
                     std::chrono::milliseconds limit = 60s) {
  const auto deadline = Clock::now() + limit;
  loop.restart();
  while (!done()) {
    if (Clock::now() >= deadline) return false;
    if (loop.run_one_for(100ms) == 0) loop.restart();
  }
  return true;
}

inline LinkTimeouts ShortTimeouts() {
  LinkTimeouts timeouts;
  timeouts.ping_interval = 50ms;
  timeouts.redial_silence = 300ms;
  timeouts.link_timeout = 1500ms;
  timeouts.launcher_grace = 500ms;
  timeouts.handshake = 400ms;
  timeouts.redial_pause = 10ms;
  return timeouts;
}

inline wire::Envelope Control(std::uint64_t number, std::size_t padding = 0) {
  wire::Envelope message;
  message.mutable_header()->set_migration(static_cast<std::uint32_t>(number));
  message.mutable_problem()->set_text(std::string(padding, 'x'));
  return message;
}
inline wire::Envelope Stdio(std::uint64_t number, std::size_t padding = 0) {
  wire::Envelope message;
  message.mutable_output()->set_rank(static_cast<std::uint32_t>(number));
  message.mutable_output()->set_data(std::string(padding, 'o'));
  return message;
}

// What one end has seen.
struct Seen {
  std::vector<std::uint64_t> control;
  std::vector<std::uint64_t> stdio;
  int ups = 0;
  int downs = 0;
  int rooms = 0;
  std::string address;
  std::vector<Error> lost;
  Clock::time_point lost_at;

  bool Take(const wire::Envelope& message) {  // true for stdio
    if (message.has_output()) {
      stdio.push_back(message.output().rank());
      return true;
    }
    control.push_back(message.header().migration());
    return false;
  }
  void Lose(Error reason) {
    lost.push_back(std::move(reason));
    lost_at = Clock::now();
  }
};

inline std::vector<std::uint64_t> Numbers(std::uint64_t count) {
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 1; i <= count; ++i) numbers.push_back(i);
  return numbers;
}

struct Ends {
  static constexpr ProxyId kProxy{1, 0, 0};

  explicit Ends(LinkTimeouts timeouts = {}) : timeouts(timeouts) {
    LinkServerEvents events{
        .on_message =
            [this](ProxyId id, wire::Envelope message) {
              EXPECT_EQ(id, kProxy);
              if (at_launcher.Take(message) && write_out) server->StdioDone(id);
            },
        .on_up =
            [this](ProxyId, std::string peer) {
              ++at_launcher.ups;
              at_launcher.address = peer;
            },
        .on_down = [this](ProxyId, std::string) { ++at_launcher.downs; },
        .on_lost = [this](ProxyId, Error reason) { at_launcher.Lose(std::move(reason)); },
        .on_stdio_room = [this](ProxyId) { ++at_launcher.rooms; }};
    LinkServer::Options options{.job = "job", .interface = "lo", .ports = {}, .timeouts = timeouts};
    server = LinkServer::Listen(loop, secret, options, std::move(events)).value();
    server->Expect(kProxy);
  }

  LinkClientEvents ClientEvents(Seen* seen, std::unique_ptr<LinkClient>* client) {
    return {.on_message =
                [seen, client](wire::Envelope message) {
                  if (seen->Take(message)) (*client)->StdioDone();
                },
            .on_up =
                [seen](std::string local) {
                  ++seen->ups;
                  seen->address = local;
                },
            .on_down = [seen](std::string) { ++seen->downs; },
            .on_lost = [seen](Error reason) { seen->Lose(std::move(reason)); },
            .on_stdio_room = [seen] { ++seen->rooms; }};
  }
  LinkClient::Options ClientOptions(std::uint16_t port = 0) {
    return {.job = "job",
            .proxy = kProxy,
            .addresses = {"127.0.0.1"},
            .port = port == 0 ? server->port() : port,
            .timeouts = timeouts};
  }
  void Dial(std::uint16_t port = 0) {
    client = LinkClient::Start(loop, secret, ClientOptions(port), ClientEvents(&at_proxy, &client))
                 .value();
  }
  bool Until(const std::function<bool()>& done) { return RunUntil(loop, done); }
  bool UntilUp() {
    return Until([&] { return at_proxy.ups > 0 && at_launcher.ups > 0; });
  }

  asio::io_context loop;
  LinkTimeouts timeouts;
  Secret secret = Secret::Random().value();
  Seen at_launcher;
  Seen at_proxy;
  bool write_out = true;  // the launcher writes stdio out as it comes
  std::unique_ptr<LinkServer> server;
  std::unique_ptr<LinkClient> client;
};

// Forwards connections to `port`; a frozen direction swallows what it reads.
class Relay {
 public:
  Relay(asio::io_context& loop, std::uint16_t port)
      : loop_(loop),
        acceptor_(loop, tcp::endpoint(asio::ip::address_v4::loopback(), 0)),
        port_(port) {
    Accept();
  }
  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }
  void Freeze(bool to_server, bool to_client) {
    frozen_[0] = to_server;
    frozen_[1] = to_client;
  }
  void CutAll() {
    for (auto& weak : pairs_) {
      if (auto pair = weak.lock()) pair->Close();
    }
    pairs_.clear();
  }
  const std::string& heard() const { return heard_; }  // all bytes from clients

 private:
  struct Pair {
    Pair(tcp::socket c, asio::io_context& loop) : client(std::move(c)), server(loop) {}
    void Close() {
      asio::error_code ignored;
      client.close(ignored);
      server.close(ignored);
    }
    tcp::socket client;
    tcp::socket server;
    std::array<std::array<char, 8192>, 2> buffers;
  };

  void Accept() {
    acceptor_.async_accept([this](asio::error_code error, tcp::socket socket) {
      if (error) return;
      auto pair = std::make_shared<Pair>(std::move(socket), loop_);
      pairs_.push_back(pair);
      pair->server.connect(tcp::endpoint(asio::ip::address_v4::loopback(), port_), error);
      if (error) pair->Close();
      Pump(pair, 0);
      Pump(pair, 1);
      Accept();
    });
  }
  void Pump(std::shared_ptr<Pair> pair, int direction) {
    tcp::socket& from = direction == 0 ? pair->client : pair->server;
    from.async_read_some(asio::buffer(pair->buffers[direction]), [=, this](asio::error_code error,
                                                                           std::size_t bytes) {
      if (error) return pair->Close();
      if (direction == 0) heard_.append(pair->buffers[0].data(), bytes);
      if (frozen_[direction]) return Pump(pair, direction);
      tcp::socket& to = direction == 0 ? pair->server : pair->client;
      asio::async_write(to, asio::buffer(pair->buffers[direction].data(), bytes),
                        [=, this](asio::error_code write_error, std::size_t) {
                          if (write_error) return pair->Close();
                          Pump(pair, direction);
                        });
    });
  }

  asio::io_context& loop_;
  tcp::acceptor acceptor_;
  std::uint16_t port_;
  bool frozen_[2] = {};
  std::string heard_;
  std::vector<std::weak_ptr<Pair>> pairs_;
};

}  // namespace xmpi::os::testing
