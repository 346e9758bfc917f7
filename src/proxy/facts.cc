#include "proxy/facts.h"

#include <fcntl.h>

#include <asio.hpp>
#include <cstdio>
#include <format>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/limits.h"
#include "criu/criu_checkpointer.h"
#include "os/slot.h"
#include "proxy/prepare.h"

namespace xmpi::proxy {
namespace {

// The checkpointer's thread hands its result over through a loop that nobody runs here: the slot's
// own dispatch loop asks for it.
Result<criu::Preflight> AskCriu(os::Slot* slot) {
  asio::io_context loop(1);
  const auto work = asio::make_work_guard(loop);
  std::optional<Result<criu::Preflight>> answer;
  criu::CriuCheckpointer checkpointer(
      slot, [&loop](std::function<void()> run) { asio::post(loop, std::move(run)); });
  asio::posix::stream_descriptor watch(loop, fcntl(slot->fd(), F_DUPFD_CLOEXEC, 3));
  asio::steady_timer deadline(loop, limits::kCriuCheck);
  const auto wait = [&](const auto& self) -> void {
    watch.async_wait(asio::posix::stream_descriptor::wait_read,
                     [&, self](const asio::error_code& error) {
                       if (error) return;
                       slot->Dispatch();
                       self(self);
                     });
  };
  wait(wait);
  deadline.async_wait([&](const asio::error_code& error) {
    if (!error) loop.stop();
  });
  checkpointer.Check([&](Result<criu::Preflight> checked) {
    answer = std::move(checked);
    loop.stop();
  });
  loop.run();
  if (!answer) return Fail(ErrorCode::kTimeout, "criu does not answer");
  return std::move(*answer);
}

}  // namespace

int PrintFacts() {
  const Result<std::unique_ptr<os::Slot>> slot = os::Slot::Start();
  if (!slot) {
    std::fprintf(stderr, "xmpi-proxy: %s\n", slot.error().message.c_str());
    return 1;
  }
  const Here here{
      .node = "", .version = XMPI_VERSION, .slot = slot->get(), .criu = AskCriu(slot->get())};
  std::string text;
  for (const char c : LookAtNode(here).SerializeAsString())
    text += std::format("{:02x}", static_cast<unsigned char>(c));
  return std::puts(text.c_str()) < 0 || std::fflush(stdout) != 0 ? 1 : 0;
}

}  // namespace xmpi::proxy
