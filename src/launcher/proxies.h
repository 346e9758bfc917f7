// The processes of a job's proxies: one remote shell each, from its start until it has ended. A
// proxy is lost when its shell fails before it has connected, or when both its shell and its
// connection are gone; a connected proxy whose shell alone dies is left to the rules of the link.
//
// Runs on the loop. It owns the shells and the job's secret; it never touches the job's state.
#pragma once

#include <asio.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "launcher/options.h"
#include "os/key.h"
#include "os/link_server.h"
#include "os/remote_shell.h"

namespace xmpi::launcher {

struct ProxiesEvents {
  std::function<void(ProxyId, std::string reason)> on_lost;
  std::function<void(std::string line)> say;  // what a proxy has to tell the user
};

class Proxies {
 public:
  Proxies(asio::io_context& loop, const Options& options, std::string job, os::LinkServer& links,
          os::Secret secret, ProxiesEvents events);
  ~Proxies();

  void Start(ProxyId id, const std::string& node);
  void OnUp(ProxyId id);
  void OnDown(ProxyId id);
  // Says goodbye to the proxy, and ends its shell if it has not ended by itself soon after.
  void Stop(ProxyId id);
  // The proxies that have never connected.
  std::vector<ProxyId> NotYetUp() const;
  // `done` runs when every shell has ended, from the loop.
  void WhenAllEnded(std::function<void()> done);

 private:
  struct Proxy;

  std::string BootstrapLine(ProxyId id, const std::string& node) const;
  void OnLine(ProxyId id, std::string line);
  void OnShellEnded(ProxyId id, Result<> how);
  void LoseIfGone(ProxyId id, Proxy& proxy);
  void Erase(ProxyId id);

  asio::io_context& loop_;
  const Options& options_;
  const std::string job_;
  os::LinkServer& links_;
  const os::Secret secret_;
  ProxiesEvents events_;
  std::string proxy_path_;
  std::map<ProxyId, std::unique_ptr<Proxy>> proxies_;
  std::function<void()> all_ended_;
};

}  // namespace xmpi::launcher
