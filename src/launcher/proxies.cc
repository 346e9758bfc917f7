#include "launcher/proxies.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <format>

#include "base/limits.h"
#include "base/log.h"
#include "wire/bootstrap.h"

namespace xmpi::launcher {
namespace {

constexpr std::size_t kEarlyLines = 100;

std::string ProxyBesideUs() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "xmpi-proxy" : (self.parent_path() / "xmpi-proxy").string();
}

std::string EnvironmentOr(const char* name, std::string fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::move(fallback) : value;
}

}  // namespace

struct Proxies::Proxy {
  explicit Proxy(asio::io_context& loop) : grace(loop) {}
  std::string node;
  std::unique_ptr<os::RemoteShell> shell;  // null once it has ended
  asio::steady_timer grace;
  std::vector<std::string> early_lines;  // before it was up: an Error may quote them
  bool connected = false;
  bool was_up = false;
  bool stopped = false;
};

Proxies::Proxies(asio::io_context& loop, const Options& options, std::string job,
                 os::LinkServer& links, os::Secret secret, ProxiesEvents events)
    : loop_(loop),
      options_(options),
      job_(std::move(job)),
      links_(links),
      secret_(std::move(secret)),
      events_(std::move(events)),
      proxy_path_(options.proxy_path.empty() ? ProxyBesideUs() : options.proxy_path) {}

Proxies::~Proxies() = default;

void Proxies::Start(ProxyId id, const std::string& node) {
  auto& proxy = *(proxies_[id] = std::make_unique<Proxy>(loop_));
  proxy.node = node;
  links_.Expect(id);
  os::RemoteShell::Options options{.node = node,
                                   .command = {proxy_path_, job_, ToString(id)},
                                   .shell = options_.remote_shell,
                                   .input = BootstrapLine(id, node),
                                   .start_deadline = options_.link_timeouts.start};
  auto shell = os::RemoteShell::Start(
      loop_, std::move(options),
      {.on_stderr = [this, id](std::string line) { OnLine(id, std::move(line)); },
       .on_ended = [this, id](Result<> how) { OnShellEnded(id, std::move(how)); }});
  if (shell) {
    proxy.shell = std::move(*shell);
    return;
  }
  // Told from the loop, like any other failure.
  asio::post(loop_, [this, id, error = std::move(shell.error())] {
    OnShellEnded(id, std::unexpected(error));
  });
}

std::string Proxies::BootstrapLine(ProxyId id, const std::string& node) const {
  wire::Bootstrap bootstrap{.version = XMPI_VERSION,
                            .job = job_,
                            .proxy = id,
                            .node = node,
                            .addresses = links_.addresses(),
                            .port = links_.port(),
                            .secret_hex = secret_.ToHex(),
                            .timeouts = options_.link_timeouts,
                            .interface = os::InterfaceName(options_.interface),
                            .port_range = options_.port_range,
                            .carry_files = options_.carry_files,
                            .log_level = EnvironmentOr("XMPI_LOG", ""),
                            .fault = EnvironmentOr("XMPI_FAULT", "")};
  std::string line = wire::ToLine(bootstrap);
  os::Wipe(&bootstrap.secret_hex);
  return line;
}

void Proxies::OnUp(ProxyId id) {
  const auto found = proxies_.find(id);
  if (found == proxies_.end()) return;
  Proxy& proxy = *found->second;
  proxy.connected = proxy.was_up = true;
  proxy.grace.cancel();
  if (proxy.shell) proxy.shell->Started();
  for (std::string& line : std::exchange(proxy.early_lines, {})) OnLine(id, std::move(line));
}

void Proxies::OnDown(ProxyId id) {
  const auto found = proxies_.find(id);
  if (found == proxies_.end()) return;
  found->second->connected = false;
  LoseIfGone(id, *found->second);
}

void Proxies::OnLine(ProxyId id, std::string line) {
  const auto found = proxies_.find(id);
  if (found == proxies_.end()) return;
  Proxy& proxy = *found->second;
  if (proxy.was_up) return events_.say(std::format("{}: {}", proxy.node, line));
  if (proxy.early_lines.size() < kEarlyLines) proxy.early_lines.push_back(std::move(line));
}

void Proxies::OnShellEnded(ProxyId id, Result<> how) {
  const auto found = proxies_.find(id);
  if (found == proxies_.end()) return;
  Proxy& proxy = *found->second;
  // Not from inside its own callback.
  asio::post(loop_, [shell = std::shared_ptr<os::RemoteShell>(std::move(proxy.shell))] {});
  if (proxy.stopped) return Erase(id);
  log::Info("proxy.shell_ended",
            {{"proxy", ToString(id)}, {"how", how ? "exit code 0" : how.error().message}});
  if (proxy.was_up) return LoseIfGone(id, proxy);
  events_.on_lost(id, how ? "xmpi-proxy ended before it had connected" : how.error().message);
}

void Proxies::LoseIfGone(ProxyId id, Proxy& proxy) {
  if (proxy.shell || proxy.connected || proxy.stopped) return;
  proxy.grace.expires_after(limits::kRedialGrace);
  proxy.grace.async_wait([this, id](std::error_code error) {
    if (!error) events_.on_lost(id, "its proxy has died");
  });
}

void Proxies::Stop(ProxyId id) {
  const auto found = proxies_.find(id);
  if (found == proxies_.end()) return;
  Proxy& proxy = *found->second;
  proxy.stopped = true;
  if (proxy.was_up) {
    links_.Close(id, "the job has no more use for this proxy");
  } else {
    links_.Forget(id);
    if (proxy.shell) proxy.shell->Kill();
  }
  if (!proxy.shell) return Erase(id);
  proxy.grace.expires_after(limits::kShellGrace);
  proxy.grace.async_wait([this, id](std::error_code error) {
    const auto late = proxies_.find(id);
    if (!error && late != proxies_.end() && late->second->shell) late->second->shell->Kill();
  });
}

void Proxies::Erase(ProxyId id) {
  proxies_.erase(id);
  if (proxies_.empty() && all_ended_) asio::post(loop_, std::exchange(all_ended_, nullptr));
}

std::vector<ProxyId> Proxies::NotYetUp() const {
  std::vector<ProxyId> ids;
  for (const auto& [id, proxy] : proxies_) {
    if (!proxy->was_up && !proxy->stopped) ids.push_back(id);
  }
  return ids;
}

void Proxies::WhenAllEnded(std::function<void()> done) {
  all_ended_ = std::move(done);
  if (proxies_.empty()) asio::post(loop_, std::exchange(all_ended_, nullptr));
}

}  // namespace xmpi::launcher
