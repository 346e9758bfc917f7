// The launcher's end of the job's control socket: takes one request from each xmpictl and streams
// the answer (wire/ctl.h). It turns requests into orders for the coordinator and follows their
// migrations through the records; it decides nothing. A client that goes away, stalls or talks
// nonsense loses its connection and nothing else.
#pragma once

#include <asio.hpp>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/action.h"
#include "core/event.h"
#include "os/control_socket.h"

namespace xmpi::launcher {

struct ControlServerEvents {
  std::function<nlohmann::ordered_json()> status;
  std::function<void(core::Event)> order;  // EvacuateOrder or CancelOrder; may answer from inside
};

class ControlServer {
 public:
  ControlServer(asio::io_context& loop, os::ControlListener listener, ControlServerEvents events);
  ~ControlServer();

  void OnRecord(const core::Record& record);
  void OnAccepted(const core::Accepted& accepted);
  void OnAnswer(const core::Answer& answer);

 private:
  struct Client;

  void Accept();
  void ReadRequest(std::shared_ptr<Client> client);
  void OnRequest(const std::shared_ptr<Client>& client, std::string_view line);
  void Order(const std::shared_ptr<Client>& client, core::RequestId request, core::Event order);

  asio::io_context& loop_;
  os::ControlListener listener_;
  ControlServerEvents events_;
  asio::local::stream_protocol::acceptor acceptor_;
  core::RequestId last_request_ = 0;
  std::map<core::RequestId, std::shared_ptr<Client>> waiting_;
};

}  // namespace xmpi::launcher
