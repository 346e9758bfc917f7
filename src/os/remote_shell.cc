#include "os/remote_shell.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <cstdlib>
#include <format>

#include "base/limits.h"
#include "os/key.h"
#include "os/net.h"
#include "os/process.h"

namespace xmpi::os {
namespace {

constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kLastLines = 3;

// No question, no terminal, no forwarding; what else the user's ssh configuration says holds.
constexpr const char* kSshOptions[] = {"-T", "-x",
                                       "-o", "BatchMode=yes",
                                       "-o", "ConnectTimeout=10",
                                       "-o", "ServerAliveInterval=5",
                                       "-o", "ServerAliveCountMax=4",
                                       "-o", "LogLevel=ERROR",
                                       "-o", "ClearAllForwardings=yes",
                                       "-o", "ForwardAgent=no"};

std::vector<std::string> SplitAtBlanks(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const auto blank = text.find(' ');
    if (blank != 0) words.emplace_back(text.substr(0, blank));
    text.remove_prefix(blank == std::string_view::npos ? text.size() : blank + 1);
  }
  return words;
}

bool IsHarmless(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-+=:,./@%").find(c) != std::string_view::npos;
}

std::string RemoteCommand(const std::vector<std::string>& command) {
  std::string text;
  for (const auto& word : command) text += (text.empty() ? "" : " ") + QuoteForShell(word);
  return text;
}

}  // namespace

std::string QuoteForShell(std::string_view word) {
  bool harmless = !word.empty();
  for (const char c : word) harmless = harmless && IsHarmless(c);
  if (harmless) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

Result<std::vector<std::string>> RemoteCommandLine(const RemoteShell::Options& options) {
  if (options.node.empty() || options.node.starts_with('-')) {
    return Fail(ErrorCode::kUsage, std::format("'{}' is no host name", options.node));
  }
  std::vector<std::string> argv = options.shell;
  const char* ssh = std::getenv("XMPI_SSH");
  if (argv.empty() && ssh != nullptr) argv = SplitAtBlanks(ssh);
  if (argv.empty() && IsThisHost(options.node)) return options.command;
  if (!options.shell.empty()) {
    argv.push_back(options.node);
    argv.insert(argv.end(), options.command.begin(), options.command.end());
    return argv;
  }
  if (argv.empty()) argv = {"ssh"};
  argv.insert(argv.end(), std::begin(kSshOptions), std::end(kSshOptions));
  argv.insert(argv.end(), {"--", options.node, RemoteCommand(options.command)});
  return argv;
}

namespace {

// What to do when not even `program`, the first word of the command line, could be run here.
std::string_view RemedyFor(std::string_view program, const RemoteShell::Options& options) {
  if (!options.shell.empty()) return "; it is the command of -launcher exec";
  if (program == options.command.front())
    return "; is XMPI installed there? -proxy-path says where";
  if (program == "ssh") return "; install openssh-client or use -launcher exec CMD";
  return "; XMPI_SSH names it";
}

}  // namespace

class RemoteShell::Impl : public std::enable_shared_from_this<RemoteShell::Impl> {
 public:
  Impl(asio::io_context& loop, Options options, Events events)
      : loop_(loop),
        options_(std::move(options)),
        events_(std::move(events)),
        input_(loop),
        stderr_(loop),
        deadline_(loop),
        drained_(loop) {}

  Result<> Start();
  void Stop();
  void Started() { deadline_.cancel(); }
  void Kill() {
    if (process_) process_->Signal(SIGKILL);
  }

 private:
  static asio::awaitable<void> WriteInput(std::shared_ptr<Impl> self);
  static asio::awaitable<void> ReadStderr(std::shared_ptr<Impl> self);
  static asio::awaitable<void> Finish(std::shared_ptr<Impl> self, int status);
  void WatchDeadline();
  void TakeStderr(std::string_view bytes);
  void EndLine();
  Result<> Outcome(int status) const;

  asio::io_context& loop_;
  Options options_;
  Events events_;
  asio::local::stream_protocol::socket input_;
  asio::posix::stream_descriptor stderr_;
  asio::steady_timer deadline_;
  asio::steady_timer drained_;  // cancelled when stderr has ended
  std::unique_ptr<Process> process_;
  std::string line_;
  std::vector<std::string> last_lines_;
  bool stderr_ended_ = false;
  bool timed_out_ = false;
  bool stopped_ = false;
};

Result<> RemoteShell::Impl::Start() {
  XMPI_ASSIGN_OR_RETURN(const std::vector<std::string> argv, RemoteCommandLine(options_));
  // A socket rather than a pipe: writing to a dead reader then raises no SIGPIPE.
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return std::unexpected(ErrnoError("socketpair"));
  }
  input_.assign(asio::local::stream_protocol(), ends[0]);
  const Fd childs_input(ends[1]);
  XMPI_ASSIGN_OR_RETURN(Pipe errors, MakePipe());
  stderr_.assign(errors.read.Release());
  SpawnOptions spawn{argv, {{childs_input.get(), 0}, {errors.write.get(), 2}}};
  if (options_.output >= 0) spawn.fds.push_back({options_.output, 1});
  auto process = Process::Spawn(loop_, spawn, [this](int status) {
    asio::co_spawn(loop_, Finish(shared_from_this(), status), asio::detached);
  });
  if (!process) {
    process.error().message += RemedyFor(argv.front(), options_);
    return std::unexpected(process.error());
  }
  process_ = std::move(*process);
  WatchDeadline();
  asio::co_spawn(loop_, WriteInput(shared_from_this()), asio::detached);
  asio::co_spawn(loop_, ReadStderr(shared_from_this()), asio::detached);
  return {};
}

void RemoteShell::Impl::WatchDeadline() {
  deadline_.expires_after(options_.start_deadline);
  deadline_.async_wait([self = shared_from_this()](const asio::error_code& error) {
    if (error || self->stopped_) return;
    self->timed_out_ = true;
    self->Kill();
  });
}

void RemoteShell::Impl::Stop() {
  stopped_ = true;
  process_.reset();
  deadline_.cancel();
  drained_.cancel();
  asio::error_code ignored;
  input_.close(ignored);
  stderr_.close(ignored);
}

asio::awaitable<void> RemoteShell::Impl::WriteInput(std::shared_ptr<Impl> self) {
  // A failure shows in how the command ends.
  co_await asio::async_write(self->input_, asio::buffer(self->options_.input), kNoThrow);
  Wipe(&self->options_.input);
  asio::error_code ignored;
  self->input_.close(ignored);
}

asio::awaitable<void> RemoteShell::Impl::ReadStderr(std::shared_ptr<Impl> self) {
  std::array<char, 4096> buffer;
  for (;;) {
    const auto [error, bytes] =
        co_await self->stderr_.async_read_some(asio::buffer(buffer), kNoThrow);
    if (self->stopped_) co_return;
    if (error) break;
    self->TakeStderr({buffer.data(), bytes});
    if (self->stopped_) co_return;
  }
  if (!self->line_.empty()) self->EndLine();
  self->stderr_ended_ = true;
  self->drained_.cancel();
}

void RemoteShell::Impl::TakeStderr(std::string_view bytes) {
  for (const char c : bytes) {
    if (stopped_) return;
    if (c == '\n' || line_.size() >= limits::kShellLineBytes) EndLine();
    if (c != '\n' && c != '\r') line_.push_back(c);
  }
}

void RemoteShell::Impl::EndLine() {
  std::string line = std::exchange(line_, {});
  if (!line.empty()) {
    last_lines_.push_back(line);
    if (last_lines_.size() > kLastLines) last_lines_.erase(last_lines_.begin());
  }
  if (events_.on_stderr) events_.on_stderr(std::move(line));
}

asio::awaitable<void> RemoteShell::Impl::Finish(std::shared_ptr<Impl> self, int status) {
  self->deadline_.cancel();
  self->drained_.expires_after(limits::kStderrGrace);
  if (!self->stderr_ended_) co_await self->drained_.async_wait(kNoThrow);
  if (self->stopped_) co_return;
  auto on_ended = self->events_.on_ended;
  const Result<> outcome = self->Outcome(status);
  self->Stop();
  if (on_ended) on_ended(outcome);
}

Result<> RemoteShell::Impl::Outcome(int status) const {
  std::string last_words;
  for (const auto& line : last_lines_) last_words += (last_words.empty() ? "" : " | ") + line;
  if (timed_out_) {
    const std::string shell = options_.shell.empty() ? "ssh" : RemoteCommand(options_.shell);
    return Fail(
        ErrorCode::kTimeout,
        std::format("{} accepted the connection but did not start {} within {} s: try `{} "
                    "{} true`{}{}",
                    options_.node, options_.command.front(),
                    std::chrono::duration<double>(options_.start_deadline).count(), shell,
                    options_.node, last_words.empty() ? "" : "; its last words: ", last_words));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return std::unexpected(ExplainShellFailure(options_, status, last_words));
}

Result<std::unique_ptr<RemoteShell>> RemoteShell::Start(asio::io_context& loop, Options options,
                                                        Events events) {
  const std::string node = options.node;
  auto impl = std::make_shared<Impl>(loop, std::move(options), std::move(events));
  if (auto started = impl->Start(); !started) {
    impl->Stop();
    return std::unexpected(WithContext(std::format("node {}", node), started.error()));
  }
  return std::unique_ptr<RemoteShell>(new RemoteShell(std::move(impl)));
}

RemoteShell::RemoteShell(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
RemoteShell::~RemoteShell() { impl_->Stop(); }
void RemoteShell::Started() { impl_->Started(); }
void RemoteShell::Kill() { impl_->Kill(); }

}  // namespace xmpi::os
