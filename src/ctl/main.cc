// xmpictl: what an operator can ask of a running job.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <format>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/limits.h"
#include "ctl/client.h"
#include "ctl/doctor.h"
#include "ctl/show.h"
#include "os/control_socket.h"

namespace xmpi::ctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kUsageExitCode = 2;

struct Words {
  bool json = false;
  std::string job;
  std::vector<std::string> job_and_node;
  std::string to;
  std::vector<std::string> nodes;
  std::string proxy_path;
};

void Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}
void PrintJson(const Json& json) {
  Print(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

Result<std::string> JobOf(const std::string& named) {
  return named.empty() ? TheOnlyJob() : Result<std::string>(named);
}

Result<Json> Status(const std::string& job) {
  return Ask(
      job, {.command = wire::CtlRequest::Command::kStatus}, [](const Json&) {},
      limits::kLauncherAnswer);
}

Result<int> List(const Words& words) {
  XMPI_ASSIGN_OR_RETURN(const std::vector<std::string> jobs, os::ControlJobs());
  std::vector<Json> statuses;
  for (const std::string& job : jobs) {
    // One that has just ended is no error.
    if (auto status = Status(job)) statuses.push_back(std::move(*status));
  }
  if (words.json) {
    PrintJson(statuses);
  } else {
    Print(ShowList(statuses));
  }
  return 0;
}

Result<int> ShowJob(const Words& words) {
  XMPI_ASSIGN_OR_RETURN(const std::string job, JobOf(words.job));
  XMPI_ASSIGN_OR_RETURN(const Json status, Status(job));
  if (words.json) {
    PrintJson(status);
  } else {
    Print(ShowStatus(status));
  }
  return 0;
}

Result<int> Evacuate(const Words& words) {
  const bool named = words.job_and_node.size() == 2;
  const std::string& node = words.job_and_node.back();
  XMPI_ASSIGN_OR_RETURN(const std::string job, JobOf(named ? words.job_and_node.front() : ""));
  const auto began = std::chrono::steady_clock::now();
  const auto show = [&](const Json& event) {
    if (words.json) return;
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - began;
    Print(std::format("{:9.3f} s  {}\n", time.count(), ShowEvent(event)));
  };
  wire::CtlRequest request{.command = wire::CtlRequest::Command::kEvacuate, .node = node};
  if (!words.to.empty()) request.to = words.to;
  XMPI_ASSIGN_OR_RETURN(const Json result, Ask(job, request, show, {}));
  const bool ok = result.value("ok", false);
  if (words.json) {
    PrintJson(result);
    return ok ? 0 : 1;
  }
  if (!ok) return Fail(std::format("{} is not evacuated: {}", node, result.value("reason", "")));
  Print("\n" + ShowResult(result));
  return 0;
}

Result<int> Cancel(const Words& words) {
  XMPI_ASSIGN_OR_RETURN(const std::string job, JobOf(words.job));
  XMPI_ASSIGN_OR_RETURN(const Json result, Ask(
                                               job, {.command = wire::CtlRequest::Command::kCancel},
                                               [](const Json&) {}, limits::kLauncherAnswer));
  const bool ok = result.value("ok", false);
  if (words.json) {
    PrintJson(result);
    return ok ? 0 : 1;
  }
  if (!ok) return Fail(std::format("nothing is cancelled: {}", result.value("reason", "")));
  Print(std::format("migration {} is cancelled\n", result.value("migration", 0)));
  return 0;
}

int Finish(const Result<int>& outcome) {
  if (outcome) return *outcome;
  std::fprintf(stderr, "xmpictl: %s\n", outcome.error().message.c_str());
  return outcome.error().code == ErrorCode::kUsage ? kUsageExitCode : 1;
}

int Main(int argc, char** argv) {
  CLI::App app("Asks a running job of xmpiexec, or moves its ranks off a node.", "xmpictl");
  app.require_subcommand(1);
  app.set_version_flag("--version", "xmpictl " XMPI_VERSION);
  Words words;
  const auto add = [&](const char* name, const char* text) {
    CLI::App* command = app.add_subcommand(name, text);
    command->add_flag("--json", words.json, "answer as JSON, for scripts");
    return command;
  };
  CLI::App* list = add("list", "the jobs of this user that run on this host");
  CLI::App* status = add("status", "where each rank of a job is, and what migration is going on");
  status->add_option("JOB", words.job, "the job; may be left out when there is just one");
  CLI::App* evacuate =
      add("evacuate", "move all ranks of a job off a node; returns when they run again");
  evacuate->add_option("NODE", words.job_and_node, "the job, if there are several; the node")
      ->option_text("[JOB] NODE")
      ->required()
      ->expected(1, 2);
  evacuate->add_option("--to", words.to, "the target node (default: the job's next spare)");
  CLI::App* cancel = add("cancel", "call off the migration that is going on");
  cancel->add_option("JOB", words.job, "the job; may be left out when there is just one");
  CLI::App* doctor = add("doctor", "whether nodes are fit for jobs that move, before there is one");
  doctor->add_option("NODE", words.nodes, "the nodes, beside this one");
  doctor->add_option("--proxy-path", words.proxy_path,
                     "xmpi-proxy there (default: beside xmpictl)");
  CLI::App* help = app.add_subcommand("help", "show this");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageExitCode;
  }
  if (help->parsed()) return Print(app.help()), 0;
  if (list->parsed()) return Finish(List(words));
  if (status->parsed()) return Finish(ShowJob(words));
  if (evacuate->parsed()) return Finish(Evacuate(words));
  if (doctor->parsed()) return Finish(Doctor({words.nodes, words.proxy_path, words.json}, Print));
  return cancel->parsed() ? Finish(Cancel(words)) : kUsageExitCode;
}

}  // namespace
}  // namespace xmpi::ctl

int main(int argc, char** argv) { return xmpi::ctl::Main(argc, argv); }
