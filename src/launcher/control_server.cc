#include "launcher/control_server.h"

#include <fcntl.h>
#include <unistd.h>

#include <deque>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/log.h"
#include "launcher/event_log.h"
#include "launcher/status.h"
#include "wire/ctl.h"

namespace xmpi::launcher {
namespace {

// Who does not read this much has stalled.
constexpr std::size_t kUnreadBytes = 2 * wire::kCtlReplyBytes;
// Records of a migration that come before its order is accepted.
constexpr std::size_t kEarlyRecords = 64;

std::optional<std::int64_t> MigrationOf(const core::Record& record) {
  for (const auto& [name, value] : record.fields) {
    if (name == "migration" && std::holds_alternative<std::int64_t>(value))
      return std::get<std::int64_t>(value);
  }
  return {};
}

}  // namespace

struct ControlServer::Client : std::enable_shared_from_this<Client> {
  explicit Client(asio::local::stream_protocol::socket connection)
      : socket(std::move(connection)) {}

  void Send(std::string line, bool last) {
    if (!socket.is_open()) return;
    unsent_bytes += line.size();
    if (unsent_bytes > kUnreadBytes) return Close();
    unsent.push_back(std::move(line));
    closing = closing || last;
    if (unsent.size() == 1) Write();
  }

  void Show(const core::Record& record) {
    if (MigrationOf(record) == migration)
      Send(wire::CtlEvent(nlohmann::ordered_json::parse(RecordJson(record))), false);
  }

  void Write() {
    asio::async_write(socket, asio::buffer(unsent.front()),
                      [self = shared_from_this()](std::error_code error, std::size_t written) {
                        if (error) return self->Close();
                        self->unsent_bytes -= written;
                        self->unsent.pop_front();
                        if (!self->unsent.empty()) return self->Write();
                        if (self->closing) self->Close();
                      });
  }

  void Close() {
    std::error_code ignored;
    socket.close(ignored);
  }

  asio::local::stream_protocol::socket socket;
  std::string request;
  std::deque<std::string> unsent;
  std::size_t unsent_bytes = 0;
  bool closing = false;
  std::optional<MigrationId> migration;  // whose records it is shown
  std::deque<core::Record> early;        // of migrations, while we do not know which is ours
};

ControlServer::ControlServer(asio::io_context& loop, os::ControlListener listener,
                             ControlServerEvents events)
    : loop_(loop), listener_(std::move(listener)), events_(std::move(events)), acceptor_(loop) {
  acceptor_.assign(asio::local::stream_protocol(),
                   fcntl(listener_.socket().get(), F_DUPFD_CLOEXEC, 0));
  Accept();
}

ControlServer::~ControlServer() = default;

void ControlServer::Accept() {
  acceptor_.async_accept(
      [this](std::error_code error, asio::local::stream_protocol::socket socket) {
        if (error == asio::error::operation_aborted) return;
        if (!error) {
          fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
          Fd peer(socket.native_handle());
          const bool ours = os::PeerIsThisUser(peer);
          peer.Release();
          if (ours) {
            ReadRequest(std::make_shared<Client>(std::move(socket)));
          } else {
            log::Warn("ctl.refused", {{"why", "another user"}});
          }
        }
        Accept();
      });
}

void ControlServer::ReadRequest(std::shared_ptr<Client> client) {
  asio::async_read_until(client->socket,
                         asio::dynamic_buffer(client->request, wire::kCtlRequestBytes), '\n',
                         [this, client](std::error_code error, std::size_t bytes) {
                           if (error == asio::error::not_found)
                             return client->Send(wire::CtlError("the request is too long"), true);
                           if (error) return;
                           OnRequest(client, std::string_view(client->request).substr(0, bytes));
                         });
}

void ControlServer::OnRequest(const std::shared_ptr<Client>& client, std::string_view line) {
  const auto request = wire::ParseCtlRequest(line);
  if (!request) return client->Send(wire::CtlError(request.error().message), true);
  switch (request->command) {
    case wire::CtlRequest::Command::kStatus:
      return client->Send(wire::CtlResult(events_.status()), true);
    case wire::CtlRequest::Command::kEvacuate: {
      const core::RequestId id = ++last_request_;
      core::EvacuateOrder order{.request = id, .node = request->node, .to = request->to};
      if (request->within_ms) order.within = std::chrono::milliseconds(*request->within_ms);
      order.precopy = request->precopy;
      return Order(client, id, std::move(order));
    }
    case wire::CtlRequest::Command::kCancel: {
      const core::RequestId id = ++last_request_;
      return Order(client, id, core::CancelOrder{id});
    }
  }
}

void ControlServer::Order(const std::shared_ptr<Client>& client, core::RequestId request,
                          core::Event order) {
  waiting_[request] = client;
  events_.order(std::move(order));
}

void ControlServer::OnRecord(const core::Record& record) {
  if (!MigrationOf(record)) return;
  for (const auto& [request, client] : waiting_) {
    if (!client->migration) {
      client->early.push_back(record);
      if (client->early.size() > kEarlyRecords) client->early.pop_front();
    } else {
      client->Show(record);
    }
  }
}

void ControlServer::OnAccepted(const core::Accepted& accepted) {
  const auto found = waiting_.find(accepted.request);
  if (found == waiting_.end()) return;
  const std::shared_ptr<Client> client = found->second;
  client->migration = accepted.migration;
  for (const core::Record& record : std::exchange(client->early, {})) client->Show(record);
}

void ControlServer::OnAnswer(const core::Answer& answer) {
  const auto found = waiting_.find(answer.request);
  if (found == waiting_.end()) return;
  found->second->Send(wire::CtlResult(ResultJson(answer.result)), true);
  waiting_.erase(found);
}

}  // namespace xmpi::launcher
