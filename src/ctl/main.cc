// xmpictl: what an operator can ask of a running job.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <format>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/limits.h"
#include "ctl/client.h"
#include "ctl/doctor.h"
#include "ctl/show.h"
#include "os/control_socket.h"

namespace xmpi::ctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostNodes = static_cast<int>(limits::kWaitingOrders);

struct Words {
  bool json = false;
  std::string job;
  std::vector<std::string> job_and_nodes;
  std::string to;
  double within_s = 0;
  bool no_precopy = false;
  std::vector<std::string> nodes;
  std::string proxy_path;
};

// What cannot be written shows in the exit code, at the end: a reader that leaves early must not
// end what the command is waiting for.
bool lost_output = false;

void Print(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if ((!written || std::fflush(stdout) != 0) && !lost_output) {
    lost_output = true;
    std::fprintf(stderr, "xmpictl: %s\n", ErrnoError("standard output").message.c_str());
  }
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
  bool all = true;
  for (const std::string& job : jobs) {
    if (auto status = Status(job)) {
      statuses.push_back(std::move(*status));
    } else if (status.error().code != ErrorCode::kUnreachable) {  // that has just ended
      std::fprintf(stderr, "xmpictl: %s\n", status.error().message.c_str());
      all = false;
    }
  }
  if (words.json) {
    PrintJson(statuses);
  } else {
    Print(statuses.empty() && !all ? "" : ShowList(statuses));
  }
  return all ? 0 : 1;
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

// Orders of several nodes are told the same of a migration that serves them all; it is shown once.
class Progress {
 public:
  void Show(const Json& event) {
    const std::lock_guard lock(mutex_);
    if (!shown_.insert(event.dump()).second) return;
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - began_;
    Print(std::format("{:9.3f} s  {}\n", time.count(), ShowEvent(event)));
  }

 private:
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::set<std::string> shown_;
};

// All orders are given at once, so that one migration can serve them.
std::vector<Result<Json>> Order(const std::string& job, const std::vector<std::string>& nodes,
                                const Words& words) {
  Progress progress;
  std::vector<Result<Json>> results(nodes.size(), Fail("not asked"));
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    wire::CtlRequest request{.command = wire::CtlRequest::Command::kEvacuate, .node = nodes[i]};
    if (!words.to.empty()) request.to = words.to;
    if (words.within_s > 0)
      request.within_ms = std::max<std::int64_t>(1, std::llround(words.within_s * 1000));
    request.precopy = !words.no_precopy;
    threads.emplace_back([&, i, request] {
      const auto show = [&](const Json& event) {
        if (!words.json) progress.Show(event);
      };
      results[i] = Ask(job, request, show, {});
    });
  }
  threads.clear();  // joins
  return results;
}

Result<int> Evacuate(const Words& words) {
  std::vector<std::string> nodes = words.job_and_nodes;
  std::string named;
  if (nodes.size() > 1) {
    named = nodes.front();
    nodes.erase(nodes.begin());
  }
  XMPI_ASSIGN_OR_RETURN(const std::string job, JobOf(named));
  const std::vector<Result<Json>> results = Order(job, nodes, words);
  std::string failures;
  Json answers = Json::array();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Result<Json>& result = results[i];
    if (result) answers.push_back(*result);
    if (result && result->value("ok", false)) {
      if (!words.json) Print("\n" + ShowResult(*result));
      continue;
    }
    failures += std::format("{}{} is not evacuated: {}", failures.empty() ? "" : "; ", nodes[i],
                            result ? result->value("reason", "") : result.error().message);
  }
  const bool answered = answers.size() == nodes.size();
  if (words.json && answered) PrintJson(nodes.size() == 1 ? answers[0] : answers);
  if (failures.empty()) return 0;
  return words.json && answered ? Result<int>(1) : Fail(failures);
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
  Print(std::format("migration {} is called off: the job goes on in place\n",
                    result.value("migration", 0)));
  return 0;
}

int Finish(const Result<int>& outcome) {
  if (outcome) return *outcome == 0 && lost_output ? 1 : *outcome;
  std::fprintf(stderr, "xmpictl: %s\n", outcome.error().message.c_str());
  return outcome.error().code == ErrorCode::kUsage ? kUsageExitCode : 1;
}

// One line, like every error of ours. CLI11 misses a command before it says which word is none.
int Misused(const CLI::App& app, const CLI::ParseError& error, const std::string& first_word) {
  std::string text = error.what();
  const auto named = app.get_subcommands(
      [&](const CLI::App* command) { return command->get_name() == first_word; });
  if (named.empty() && !first_word.empty() && first_word[0] != '-')
    text = std::format("there is no command '{}'", first_word);
  std::fprintf(stderr, "xmpictl: %s; xmpictl help shows what there is\n", text.c_str());
  return kUsageExitCode;
}

std::string NotEmpty(const std::string& node) {
  return node.empty() ? "the name of a node is empty" : "";
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
      add("evacuate", "move all ranks of a job off nodes; returns when they run again");
  evacuate
      ->add_option("NODE", words.job_and_nodes,
                   "the node, or the job and any number of nodes that it leaves together")
      ->option_text("NODE | JOB NODE...")
      ->required()
      ->expected(1, kMostNodes + 1)
      ->check(NotEmpty);
  evacuate->add_option("--to", words.to, "the target node (default: the job's next spare)")
      ->check(NotEmpty);
  evacuate
      ->add_option("--within", words.within_s,
                   "seconds until the node is taken away: the pre-copy ends in time for that")
      ->check(CLI::Range(0.001, 7 * 24 * 3600.0));
  evacuate->add_flag("--no-precopy", words.no_precopy,
                     "send no memory while the ranks run: they are stopped at once, and longer");
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
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return Misused(app, error, argc > 1 ? argv[1] : "");
  }
  if (help->parsed()) {
    app.clear();  // else it is the help of `help`
    Print(app.help());
    return Finish(0);
  }
  if (list->parsed()) return Finish(List(words));
  if (status->parsed()) return Finish(ShowJob(words));
  if (evacuate->parsed()) return Finish(Evacuate(words));
  if (doctor->parsed()) return Finish(Doctor({words.nodes, words.proxy_path, words.json}, Print));
  return cancel->parsed() ? Finish(Cancel(words)) : kUsageExitCode;
}

}  // namespace
}  // namespace xmpi::ctl

int main(int argc, char** argv) { return xmpi::ctl::Main(argc, argv); }
