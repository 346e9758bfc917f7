// The shells here are small scripts that behave as ssh does; one test uses the real ssh.
#include "os/remote_shell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "os/link_test_support.h"

namespace xmpi::os {
namespace {

using namespace os::testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Outcome {
  Result<> how;
  std::vector<std::string> lines;
};

Outcome RunShell(RemoteShell::Options options, std::function<void(RemoteShell*)> at_start = {}) {
  asio::io_context loop;
  std::optional<Result<>> how;
  Outcome outcome;
  auto shell =
      RemoteShell::Start(loop, std::move(options),
                         {[&](std::string line) { outcome.lines.push_back(std::move(line)); },
                          [&](Result<> result) { how = std::move(result); }});
  if (!shell) return {std::unexpected(shell.error()), {}};
  if (at_start) at_start(shell->get());
  EXPECT_TRUE(RunUntil(loop, [&] { return how.has_value(); }));
  outcome.how = std::move(*how);
  return outcome;
}

// A shell that ignores its node and command and runs `script` instead.
RemoteShell::Options Script(const std::string& script) {
  return {.node = "node7",
          .command = {"/opt/xmpi-proxy"},
          .shell = {"/bin/sh", "-c", script},
          .input = "",
          .start_deadline = 30s};
}
std::string FailureOf(const std::string& script) {
  const auto outcome = RunShell(Script(script));
  return outcome.how ? "none" : outcome.how.error().message;
}

TEST(RemoteShell, GivesInputAndPassesStderrOn) {
  auto options = Script("cat >&2; echo end >&2");
  options.input = "secret line\n" + std::string(300000, 'x') + "\n";
  const auto outcome = RunShell(std::move(options));
  EXPECT_TRUE(outcome.how);
  ASSERT_GE(outcome.lines.size(), 3u);
  EXPECT_EQ(outcome.lines.front(), "secret line");
  EXPECT_EQ(outcome.lines.back(), "end");
}

TEST(RemoteShell, InputThatNobodyReadsDoesNoHarm) {
  auto options = Script("exec <&-; exit 0");
  options.input = std::string(1 << 20, 'x');
  EXPECT_TRUE(RunShell(std::move(options)).how);
}

TEST(RemoteShell, ExecPassesNodeAndCommandAsTheyAre) {
  const auto line = RemoteCommandLine({.node = "node7",
                                       .command = {"/a b/xmpi-proxy", "$x"},
                                       .shell = {"lab", "exec"},
                                       .input = ""});
  EXPECT_THAT(*line, ElementsAre("lab", "exec", "node7", "/a b/xmpi-proxy", "$x"));
}

TEST(RemoteShell, SshGetsOneQuotedCommandAndNeverAsks) {
  const auto line =
      RemoteCommandLine(
          {.node = "node7", .command = {"/a b/xmpi-proxy", "it's", ""}, .shell = {}, .input = ""})
          .value();
  EXPECT_EQ(line.front(), "ssh");
  EXPECT_THAT(line, ::testing::IsSupersetOf({"BatchMode=yes", "-T"}));
  EXPECT_THAT(std::vector(line.end() - 3, line.end()),
              ElementsAre("--", "node7", R"('/a b/xmpi-proxy' 'it'\''s' '')"));
}

TEST(RemoteShell, XmpiSshReplacesSsh) {
  ::setenv("XMPI_SSH", "myssh  -p 2222", 1);
  const auto line =
      RemoteCommandLine({.node = "localhost", .command = {"p"}, .shell = {}, .input = ""}).value();
  ::unsetenv("XMPI_SSH");
  EXPECT_EQ(line[0], "myssh");
  EXPECT_EQ(line[2], "2222");
  EXPECT_EQ(line.back(), "p");
}

TEST(RemoteShell, ThisHostNeedsNoShell) {
  EXPECT_THAT(
      *RemoteCommandLine({.node = "localhost", .command = {"a", "b c"}, .shell = {}, .input = ""}),
      ElementsAre("a", "b c"));
  const auto missing =
      RunShell({.node = "localhost", .command = {"/no/xmpi-proxy"}, .shell = {}, .input = ""});
  EXPECT_EQ(missing.how.error().message,
            "node localhost: start /no/xmpi-proxy: No such file or directory; is XMPI installed "
            "there? -proxy-path says where");
}

TEST(RemoteShell, AShellThatIsNotThereIsNamedWithWhatChoseIt) {
  const auto chosen =
      RunShell({.node = "node7", .command = {"p"}, .shell = {"/no/such/shell"}, .input = ""});
  EXPECT_THAT(chosen.how.error().message,
              HasSubstr("/no/such/shell: No such file or directory; it is the command of "
                        "-launcher exec"));
  ::setenv("XMPI_SSH", "/no/such/ssh", 1);
  const auto replaced = RunShell({.node = "node7", .command = {"p"}, .shell = {}, .input = ""});
  ::unsetenv("XMPI_SSH");
  EXPECT_THAT(replaced.how.error().message, HasSubstr("XMPI_SSH names it"));
}

TEST(RemoteShell, ANodeNameIsNeverAnOption) {
  EXPECT_FALSE(
      RemoteCommandLine({.node = "-oProxyCommand=x", .command = {"p"}, .shell = {}, .input = ""}));
  EXPECT_FALSE(RemoteCommandLine({.node = "", .command = {"p"}, .shell = {}, .input = ""}));
}

TEST(RemoteShell, FailuresNameTheNodeAndTheRemedy) {
  const auto ssh = [](const std::string& words) {
    return FailureOf("echo '" + words + "' >&2; exit 255");
  };
  EXPECT_EQ(
      ssh("ssh: Could not resolve hostname node7: Name or service not known"),
      "unknown host node7: check its spelling in -hosts or the hostfile; its last words: ssh: "
      "Could not resolve hostname node7: Name or service not known");
  EXPECT_THAT(ssh("Host key verification failed."), HasSubstr("accept it once with `ssh node7`"));
  EXPECT_THAT(ssh("Host key for node7 has changed and you have requested strict checking.\n"
                  "Host key verification failed."),
              HasSubstr("`ssh-keygen -R node7`"));
  EXPECT_THAT(ssh("root@node7: Permission denied (publickey,password)."),
              HasSubstr("`ssh-copy-id node7`"));
  EXPECT_THAT(ssh("ssh: connect to host node7 port 22: Connection refused"),
              HasSubstr("node7 runs no ssh server on that port"));
  EXPECT_THAT(ssh("ssh: connect to host node7 port 22: No route to host"), HasSubstr("is it up?"));
  EXPECT_THAT(ssh("ssh: connect to host node7 port 22: Connection timed out"),
              HasSubstr("does not answer"));
  EXPECT_THAT(ssh("Connection timed out during banner exchange"), HasSubstr("does not answer"));
  EXPECT_THAT(ssh("kex_exchange_identification: Connection closed by remote host"),
              HasSubstr("MaxStartups"));
  EXPECT_THAT(ssh("something new"),
              HasSubstr("the remote shell to node7 failed; its last words: something new"));
  EXPECT_THAT(FailureOf("echo 'sh: 1: /opt/xmpi-proxy: not found' >&2; exit 127"),
              HasSubstr("/opt/xmpi-proxy was not found on node7: install xmpi there"));
  EXPECT_THAT(FailureOf("exit 126"), HasSubstr("cannot be executed"));
  EXPECT_EQ(FailureOf("exit 3"),
            "/opt/xmpi-proxy on node7, started by /bin/sh, ended with exit code 3");
  EXPECT_EQ(FailureOf("kill -9 $$"),
            "/opt/xmpi-proxy on node7, started by /bin/sh, ended with signal 9 (Killed)");
}

TEST(RemoteShell, OnlyTheLastWordsAreKept) {
  const std::string message = FailureOf("for i in 1 2 3 4 5; do echo line $i >&2; done; exit 4");
  EXPECT_THAT(message, HasSubstr("its last words: line 3 | line 4 | line 5"));
  EXPECT_LT(FailureOf("head -c 3000000 /dev/zero | tr '\\0' x >&2; exit 4").size(), 20000u);
}

TEST(RemoteShell, AHostThatHangsIsGivenUp) {
  auto options = Script("echo motd >&2; sleep 1000");
  options.start_deadline = 200ms;
  const auto outcome = RunShell(std::move(options));
  ASSERT_FALSE(outcome.how);
  EXPECT_EQ(outcome.how.error().code, ErrorCode::kTimeout);
  EXPECT_THAT(outcome.how.error().message, HasSubstr("did not start /opt/xmpi-proxy within 0.2 s"));
  EXPECT_THAT(outcome.how.error().message, HasSubstr("motd"));
}

TEST(RemoteShell, StartedTakesTheDeadlineOff) {
  auto options = Script("read line; exit 0");
  options.start_deadline = 1ms;
  options.input = "go\n";
  EXPECT_TRUE(RunShell(std::move(options), [](RemoteShell* shell) { shell->Started(); }).how);
}

TEST(RemoteShell, KillEndsIt) {
  const auto outcome = RunShell(Script("sleep 1000"), [](RemoteShell* shell) { shell->Kill(); });
  EXPECT_THAT(outcome.how.error().message, HasSubstr("signal 9"));
}

TEST(RemoteShell, StderrHeldByTheBackgroundDoesNotHangTheEnd) {
  // setsid takes the sleep out of the group, as an ssh connection master is.
  const auto outcome = RunShell(
      Script("up=$(setsid sh -c 'echo up; exec sleep 5 >/dev/null' &); echo said >&2; exit 5"));
  EXPECT_THAT(outcome.how.error().message, HasSubstr("exit code 5; its last words: said"));
}

TEST(RemoteShell, TheRealSshNamesAnUnknownHost) {
  const auto outcome = RunShell({.node = "no-such-host.invalid",
                                 .command = {"p"},
                                 .shell = {},
                                 .input = "",
                                 .start_deadline = 60s});
  ASSERT_FALSE(outcome.how);
  EXPECT_THAT(outcome.how.error().message, HasSubstr("unknown host no-such-host.invalid"));
}

TEST(RemoteShell, TheRealSshNamesARefusedPort) {
  ::setenv("XMPI_SSH", "ssh -p 1", 1);
  const auto outcome = RunShell(
      {.node = "127.0.0.1", .command = {"p"}, .shell = {}, .input = "", .start_deadline = 60s});
  ::unsetenv("XMPI_SSH");
  EXPECT_THAT(outcome.how.error().message, HasSubstr("127.0.0.1 runs no ssh server on that port"));
}

}  // namespace
}  // namespace xmpi::os
