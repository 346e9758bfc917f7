#include "ctl/doctor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <asio.hpp>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <format>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "base/fd.h"
#include "base/limits.h"
#include "ctl/doctor_show.h"
#include "os/net.h"
#include "os/remote_shell.h"
#include "preflight/compare.h"

namespace xmpi::ctl {
namespace {

// What a node's facts never need; more is no facts.
constexpr std::size_t kFactsBytes = 1u << 20;

std::string ProxyBesideUs() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "xmpi-proxy" : (self.parent_path() / "xmpi-proxy").string();
}

std::int64_t NowUs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

// One node that is being asked.
struct Question {
  Patient* patient = nullptr;
  Fd output;  // a file in memory: nobody need read it meanwhile
  std::unique_ptr<os::RemoteShell> shell;
};

std::string ReadAll(const Fd& file) {
  std::string text(kFactsBytes, '\0');
  const ssize_t size = pread(file.get(), text.data(), text.size(), 0);
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return text;
}

void OnEnded(Question& question, const Result<>& how, std::int64_t asked_at_us) {
  Patient& patient = *question.patient;
  if (!how) {
    patient.facts = std::unexpected(how.error());
    return;
  }
  patient.facts = ParseFacts(patient.node, ReadAll(question.output));
  // All clocks are told as of one moment of ours: the facts are made just before the shell ends.
  if (patient.facts) patient.facts->set_time_us(patient.facts->time_us() - NowUs() + asked_at_us);
}

void AskAll(const std::string& proxy_path, std::vector<Patient>* patients) {
  asio::io_context loop(1);
  std::vector<Question> questions(patients->size());
  const std::int64_t now_us = NowUs();
  for (std::size_t i = 0; i < patients->size(); ++i) {
    Question& question = questions[i];
    question.patient = &(*patients)[i];
    question.output = Fd(memfd_create("facts", MFD_CLOEXEC));
    auto shell = os::RemoteShell::Start(
        loop,
        {.node = question.patient->node,
         .command = {proxy_path, "--facts"},
         .shell = {},
         .input = {},
         .output = question.output.get(),
         .start_deadline = limits::kNodeFacts},
        {.on_stderr = {},
         .on_ended = [&question, now_us](Result<> how) { OnEnded(question, how, now_us); }});
    if (shell) {
      question.shell = std::move(*shell);
    } else {
      question.patient->facts = std::unexpected(shell.error());
    }
  }
  loop.run();
}

void AddSilent(const Patient& patient, wire::Findings* findings) {
  wire::Finding& finding = *findings->add_findings();
  finding.set_severity(wire::Finding::REFUSE);
  finding.set_node(patient.node);
  finding.set_fd(-1);
  finding.set_what(
      std::format("{} tells nothing: {}", patient.node, patient.facts.error().message));
  finding.set_why("a proxy of a job would be started there in the same way");
  finding.set_remedy(
      std::format("make `ssh {} true` work, and install XMPI there in the same place "
                  "(or say where with --proxy-path)",
                  patient.node));
}

}  // namespace

Result<wire::NodeFacts> ParseFacts(const std::string& node, std::string text) {
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  std::string bytes;
  bool good = !text.empty() && text.size() % 2 == 0;
  for (std::size_t i = 0; good && i < text.size(); i += 2) {
    unsigned value = 0;
    const char* const end = text.data() + i + 2;
    good = std::from_chars(text.data() + i, end, value, 16).ptr == end;
    bytes += static_cast<char>(value);
  }
  wire::NodeFacts facts;
  if (!good || !facts.ParseFromString(bytes))
    return Fail(ErrorCode::kProtocol,
                std::format("xmpi-proxy there printed no facts but '{}'; is its login shell quiet, "
                            "and its XMPI of the same version?",
                            text.substr(0, 60)));
  facts.set_node(node);
  return facts;
}

wire::Findings Examine(const std::vector<Patient>& patients) {
  wire::Findings findings;
  // The same thing between many pairs is told once for each node that it is about.
  std::set<std::tuple<std::string, std::string>> told;
  for (const Patient& patient : patients) {
    if (patient.facts) {
      findings.MergeFrom(preflight::CheckNode(*patient.facts));
    } else {
      AddSilent(patient, &findings);
    }
  }
  for (const Patient& source : patients) {
    for (const Patient& target : patients) {
      if (&source == &target || !source.facts || !target.facts) continue;
      const wire::Findings pair = preflight::CompareNodes(*source.facts, *target.facts, "");
      for (const wire::Finding& finding : pair.findings()) {
        if (told.insert({finding.node(), finding.why()}).second) *findings.add_findings() = finding;
      }
    }
  }
  return findings;
}

Result<int> Doctor(const DoctorWords& words, const std::function<void(const std::string&)>& print) {
  std::vector<Patient> patients{{.node = "localhost"}};
  for (const std::string& node : words.nodes) {
    if (node.empty() || node.starts_with('-'))
      return Fail(ErrorCode::kUsage, std::format("'{}' is no host name", node));
    const bool known =
        std::ranges::any_of(patients, [&](const Patient& each) { return each.node == node; });
    if (known) continue;
    if (os::IsThisHost(node)) {
      patients.front().node = node;
    } else {
      patients.push_back({.node = node});
    }
  }
  AskAll(words.proxy_path.empty() ? ProxyBesideUs() : words.proxy_path, &patients);
  const wire::Findings findings = Examine(patients);
  if (words.json) {
    print(DoctorJson(patients, findings)
              .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
          "\n");
  } else {
    print(ShowDoctor(patients, findings));
  }
  return preflight::Refuses(findings) ? 1 : 0;
}

}  // namespace xmpi::ctl
