#include "ctl/client.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <format>
#include <nlohmann/json.hpp>
#include <vector>

#include "os/control_socket.h"

namespace xmpi::ctl {
namespace {

using Json = nlohmann::ordered_json;

Result<> SendAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return std::unexpected(ErrnoError("control socket"));
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
  return {};
}

// Lines of a connection, one by one.
class Lines {
 public:
  explicit Lines(int fd) : fd_(fd) {}

  Result<std::string> Next() {
    while (true) {
      const auto newline = buffer_.find('\n', searched_);
      if (newline != std::string::npos) {
        std::string line = buffer_.substr(0, newline);
        buffer_.erase(0, newline + 1);
        searched_ = 0;
        return line;
      }
      searched_ = buffer_.size();
      if (buffer_.size() > wire::kCtlReplyBytes)
        return Fail(ErrorCode::kProtocol, "the launcher's answer is too long");
      XMPI_RETURN_IF_ERROR(Read());
    }
  }

 private:
  Result<> Read() {
    char piece[16384];
    const ssize_t got = recv(fd_, piece, sizeof piece, 0);
    if (got > 0) {
      buffer_.append(piece, static_cast<std::size_t>(got));
      return {};
    }
    if (got < 0 && errno == EINTR) return {};
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return Fail(ErrorCode::kTimeout,
                  "the launcher does not answer; is it stopped, or its host overloaded?");
    return Fail(ErrorCode::kUnreachable,
                "the launcher has ended; its last words are on its stderr "
                "and in its event log");
  }

  const int fd_;
  std::string buffer_;
  std::size_t searched_ = 0;
};

}  // namespace

Result<Json> Ask(const std::string& job, const wire::CtlRequest& request, const OnEvent& on_event,
                 std::optional<std::chrono::seconds> patience) {
  XMPI_ASSIGN_OR_RETURN(const Fd socket, os::ConnectControl(job));
  if (patience) {
    const timeval limit{.tv_sec = patience->count(), .tv_usec = 0};
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  XMPI_RETURN_IF_ERROR(SendAll(socket.get(), wire::ToLine(request)));
  Lines lines(socket.get());
  while (true) {
    auto line = lines.Next();
    if (!line) return std::unexpected(WithContext(std::format("job {}", job), line.error()));
    const Json answer = Json::parse(*line, nullptr, false);
    if (!answer.is_object()) return Fail(ErrorCode::kProtocol, "the launcher's answer is no JSON");
    if (answer.contains("result")) return answer["result"];
    if (answer.contains("error"))
      return Fail(std::format("job {}: {}", job,
                              answer["error"].is_string() ? answer["error"].get<std::string>()
                                                          : answer["error"].dump()));
    if (answer.contains("event")) on_event(answer["event"]);
  }
}

Result<std::string> TheOnlyJob() {
  XMPI_ASSIGN_OR_RETURN(const std::vector<std::string> jobs, os::ControlJobs());
  if (jobs.size() == 1) return jobs.front();
  if (jobs.empty())
    return Fail("no job of yours runs on this host; use xmpictl where xmpiexec was started");
  std::string names;
  for (const std::string& job : jobs) names += (names.empty() ? "" : ", ") + job;
  return Fail(ErrorCode::kUsage,
              std::format("there are several jobs, name one of them: {}", names));
}

}  // namespace xmpi::ctl
