// xmpi-proxy: the process that holds one slot of a job on one node. Started by xmpiexec through a
// remote shell; everything it must know comes as one line on its standard input.
#include <fcntl.h>
#include <unistd.h>

#include <asio.hpp>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "base/fault_points.h"
#include "base/log.h"
#include "os/key.h"
#include "os/slot.h"
#include "proxy/facts.h"
#include "proxy/proxy.h"
#include "wire/bootstrap.h"

namespace xmpi::proxy {
namespace {

// One line of standard input, byte by byte: what follows it is nobody's. Then /dev/null takes its
// place.
Result<std::string> ReadBootstrapLine() {
  std::string line;
  char c = '\0';
  while (line.size() < wire::kBootstrapBytes) {
    const ssize_t size = read(STDIN_FILENO, &c, 1);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0)
      return Fail(
          "standard input ended before the bootstrap line; xmpi-proxy is started by xmpiexec, not "
          "by hand");
    if (c == '\n') break;
    line += c;
  }
  const Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null || dup2(null.get(), STDIN_FILENO) < 0) return std::unexpected(ErrnoError("/dev/null"));
  return line;
}

Result<wire::Bootstrap> ReadBootstrap() {
  XMPI_ASSIGN_OR_RETURN(std::string line, ReadBootstrapLine());
  Result<wire::Bootstrap> bootstrap = wire::ParseBootstrap(line);
  os::Wipe(&line);
  if (!bootstrap) return bootstrap;
  if (bootstrap->version != XMPI_VERSION)
    return Fail(ErrorCode::kUsage,
                std::format("xmpi-proxy on {} is version {}, xmpiexec is version {}; install the "
                            "same on all nodes, or say where it is with -proxy-path",
                            bootstrap->node, XMPI_VERSION, bootstrap->version));
  return bootstrap;
}

Result<int> Run() {
  // Before any thread, and before there is a secret in memory: the slot's init is forked from this
  // one, and its ranks may read it.
  XMPI_ASSIGN_OR_RETURN(Topology topology, Topology::Open());
  XMPI_ASSIGN_OR_RETURN(std::unique_ptr<os::Slot> slot,
                        os::Slot::Start({.kept = topology.file().get()}));
  XMPI_ASSIGN_OR_RETURN(wire::Bootstrap bootstrap, ReadBootstrap());
  if (!bootstrap.log_level.empty()) setenv("XMPI_LOG", bootstrap.log_level.c_str(), 1);
  log::Init("xmpi-proxy");
  XMPI_RETURN_IF_ERROR(bootstrap.fault.empty() ? ArmFaultsFromEnvironment(bootstrap.node)
                                               : ArmFaults(bootstrap.fault, bootstrap.node));
  XMPI_ASSIGN_OR_RETURN(os::Secret secret, os::Secret::FromHex(bootstrap.secret_hex));
  os::Wipe(&bootstrap.secret_hex);
  XMPI_ASSIGN_OR_RETURN(Host host, InspectHost(bootstrap));
  asio::io_context loop(1);
  Proxy proxy(loop, std::move(bootstrap), std::move(secret), std::move(host), std::move(slot),
              std::move(topology));
  XMPI_RETURN_IF_ERROR(proxy.Start());
  loop.run();
  return proxy.exit_code();
}

}  // namespace

int Main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "-version") {
    std::printf("xmpi-proxy %s\n", XMPI_VERSION);
    return 0;
  }
  signal(SIGPIPE, SIG_IGN);
  if (argc == 2 && std::string_view(argv[1]) == "--facts") return PrintFacts();
  const Result<int> code = Run();
  if (code) return *code;
  std::fprintf(stderr, "xmpi-proxy: %s\n", code.error().message.c_str());
  return code.error().code == ErrorCode::kUsage ? kUsageExitCode : 1;
}

}  // namespace xmpi::proxy

int main(int argc, char** argv) { return xmpi::proxy::Main(argc, argv); }
