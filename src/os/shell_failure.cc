// What goes wrong between here and a command on another node, and what a user can do about it.
#include <sys/wait.h>

#include <format>

#include "os/process.h"
#include "os/remote_shell.h"

namespace xmpi::os {
namespace {

struct Cause {
  std::string_view sign;  // in ssh's stderr
  ErrorCode code;
  std::string_view text;  // {0}: the node
};

constexpr std::string_view kChangedKey =
    "the host key of {0} is not the one known from before: if that is right, remove the old one "
    "with `ssh-keygen -R {0}` and accept the new one with `ssh {0}`";

// In the order of the search: the specific before the general.
constexpr Cause kSshCauses[] = {
    {"Could not resolve hostname", ErrorCode::kUnreachable,
     "unknown host {0}: check its spelling in -hosts or the hostfile"},
    {"REMOTE HOST IDENTIFICATION HAS CHANGED", ErrorCode::kRefused, kChangedKey},
    {"has changed and you have requested strict checking", ErrorCode::kRefused, kChangedKey},
    {"Host key verification failed", ErrorCode::kRefused,
     "the host key of {0} is not known here: accept it once with `ssh {0}`"},
    {"host key is known", ErrorCode::kRefused,
     "the host key of {0} is not known here: accept it once with `ssh {0}`"},
    {"Permission denied", ErrorCode::kRefused,
     "{0} does not let us in without a password: set up a key, for example with `ssh-copy-id {0}`"},
    {"Too many authentication failures", ErrorCode::kRefused,
     "{0} does not let us in without a password: set up a key, for example with `ssh-copy-id {0}`"},
    {"Connection refused", ErrorCode::kUnreachable, "{0} runs no ssh server on that port"},
    {"No route to host", ErrorCode::kUnreachable, "{0} cannot be reached: is it up?"},
    {"Network is unreachable", ErrorCode::kUnreachable, "{0} cannot be reached from this network"},
    {"timed out", ErrorCode::kTimeout, "{0} does not answer: is it up, and port 22 not filtered?"},
    {"Connection closed by", ErrorCode::kUnreachable,
     "the ssh server on {0} hung up: its log says why (often MaxStartups, or no such user)"},
    {"Connection reset by", ErrorCode::kUnreachable,
     "the ssh server on {0} hung up: its log says why (often MaxStartups, or no such user)"},
};

constexpr int kSshFailed = 255;
constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;

std::string Replace(std::string_view text, std::string_view node) {
  std::string out(text);
  for (auto at = out.find("{0}"); at != std::string::npos; at = out.find("{0}", at + node.size())) {
    out.replace(at, 3, node);
  }
  return out;
}

Error Diagnose(const RemoteShell::Options& options, int status, std::string_view last_words) {
  const std::string& node = options.node;
  const std::string& program = options.command.front();
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == kSshFailed) {
    for (const Cause& cause : kSshCauses) {
      if (last_words.find(cause.sign) != std::string_view::npos) {
        return {cause.code, Replace(cause.text, node)};
      }
    }
    return {ErrorCode::kUnreachable, std::format("the remote shell to {} failed", node)};
  }
  if (code == kNotFound) {
    return {ErrorCode::kFailed, std::format("{} was not found on {}: install xmpi there, at the "
                                            "same path as here, or name it with -proxy-path",
                                            program, node)};
  }
  if (code == kNotExecutable) {
    return {ErrorCode::kFailed, std::format("{} on {} cannot be executed: check its permissions "
                                            "and that it was built for that machine",
                                            program, node)};
  }
  // Of a user's own command we cannot tell its exit codes from those of what it started.
  const std::string through =
      options.shell.empty() ? "" : std::format(", started by {},", options.shell.front());
  return {ErrorCode::kFailed,
          std::format("{} on {}{} ended with {}", program, node, through, DescribeStatus(status))};
}

}  // namespace

Error ExplainShellFailure(const RemoteShell::Options& options, int status,
                          std::string_view last_words) {
  Error error = Diagnose(options, status, last_words);
  while (last_words.ends_with('\n')) last_words.remove_suffix(1);
  if (!last_words.empty()) error.message += std::format("; its last words: {}", last_words);
  return error;
}

}  // namespace xmpi::os
