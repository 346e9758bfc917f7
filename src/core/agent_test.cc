// The proxy's machine against transcripts: the start of ranks, quiesce, both sides of a move.
#include "core/agent.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <format>
#include <memory>

#include "core/transcript.h"

namespace xmpi::core {
namespace {

using rank_link::Kind;

struct Printer {
  std::string operator()(const ToLauncher& action) const {
    const wire::Envelope& envelope = action.envelope;
    const auto* field =
        wire::Envelope::descriptor()->FindFieldByNumber(static_cast<int>(envelope.body_case()));
    std::string body = envelope.GetReflection()->GetMessage(envelope, field).ShortDebugString();
    const wire::Header& header = envelope.header();
    return std::format("-> launcher: {} {{{}}} (slot={} epoch={} migration={} attempt={})",
                       std::string(field->name()), body, header.slot(), header.epoch(),
                       header.migration(), header.attempt());
  }
  std::string operator()(const ToRank& action) const {
    const rank_link::Message& fields = action.message.fields;
    std::string text = std::format("-> rank {}: {}", action.rank, rank_link::Name(fields.kind));
    if (fields.stop_call != 0) text += std::format(" stop_call={}", fields.stop_call);
    if (!action.message.name.empty())
      text += " " + action.message.name + "=" + action.message.text;
    else if (!action.message.text.empty())
      text += " \"" + action.message.text + "\"";
    return text + std::format(" (migration={})", fields.migration);
  }
  std::string operator()(const SignalRank& action) const {
    return std::format("signal rank {} thread {} with {}", action.rank, action.thread,
                       action.signal);
  }
  std::string operator()(const ToPmi& action) const {
    std::string bytes = action.bytes;
    while (bytes.ends_with('\n')) bytes.pop_back();
    return std::format("-> pmi {}: {}", action.rank, bytes);
  }
  std::string operator()(const ClosePmi& action) const {
    return std::format("close pmi {}", action.rank);
  }
  std::string operator()(const StartRanks&) const { return "start ranks"; }
  std::string operator()(const OpenTarget&) const { return "open target"; }
  std::string operator()(const ConnectSource& action) const {
    return std::format("connect to port {} for attempt {}, {} lists of sockets", action.image_port,
                       action.candidate_attempt, action.sockets.size());
  }
  std::string operator()(const DumpRanks& action) const {
    return std::format("{} for attempt {} within {}",
                       action.held ? "send held images" : "dump ranks", action.candidate_attempt,
                       action.timeout);
  }
  std::string operator()(const RestoreRanks& action) const {
    return std::format("restore ranks within {}", action.timeout);
  }
  std::string operator()(const EndTransfer&) const { return "end transfer"; }
  std::string operator()(const ContinueRanks&) const { return "continue stopped ranks"; }
  std::string operator()(const EndRanks& action) const {
    return action.at_once ? "end ranks at once" : "end ranks";
  }
  std::string operator()(const Leave& action) const { return "leave: " + action.reason; }
  std::string operator()(const AgentLog& action) const { return "log " + action.text; }
};

class World {
 public:
  std::string Run(const Command& command) {
    if (command.Word(0) == "proxy") return Proxy(command);
    if (command.Word(0) == "quietly") return Quietly();
    std::string answer;
    for (const AgentAction& action : agent_->On(Event(command)))
      answer += std::visit(Printer{}, action) + "\n";
    return answer;
  }

 private:
  // proxy 0.1.1 ranks=0-1 [device=eth0]
  std::string Proxy(const Command& command) {
    const auto numbers = ParseNumbers(command.Word(1), '.');
    id_ = {numbers.at(0), numbers.at(1), numbers.at(2)};
    ranks_ = ParseRange(command.Value("ranks", "0"));
    epoch_ = id_.migration == 0 ? 1 : 0;
    std::vector<wire::EnvironmentVariable> environment;
    if (command.values.contains("device")) {
      environment.emplace_back().set_name("DEVICE");
      environment.back().set_value(command.Value("device"));
    }
    agent_ = std::make_unique<Agent>(id_, "here", environment);
    return "";
  }

  // A seat whose ranks run and have said hello.
  std::string Quietly() {
    agent_->On(Event(ParseCommand("launcher launch")));
    agent_->On(Event(ParseCommand("started")));
    for (const RankId rank : ranks_)
      agent_->On(Event(ParseCommand(std::format("rank {} hello", rank))));
    return "";
  }

  AgentEvent Event(const Command& command) {
    const std::string& verb = command.Word(0);
    const std::string error = command.Value("error");
    if (verb == "launcher") return Launcher(command);
    if (verb == "rank") return Rank(command);
    if (verb == "pmi") return RankPmi{Number(command.Word(1)), command.Value("says") + "\n"};
    if (verb == "ended")
      return RankEnded{Number(command.Word(1)), Number(command.Value("status", "0"))};
    if (verb == "started") return RanksStarted{error, error.empty() ? Places() : NoPlaces()};
    if (verb == "prepared") return TargetPrepared{error, {"10.0.0.3"}, 7000};
    if (verb == "connected") return SourceConnected{Number(command.Value("attempt", "1")), error};
    if (verb == "arrived") return ImagesArrived{error, 4096, {}};
    if (verb == "restored") return RanksRestored{error, error.empty() ? Places() : NoPlaces()};
    if (verb == "dumped") {
      RanksDumped dumped{.error = error, .images = {}};
      for (const RankId rank : ranks_) {
        wire::RankImage& image = dumped.images.emplace_back();
        image.set_rank(rank);
        image.set_bytes(2048);
      }
      return dumped;
    }
    ADD_FAILURE() << "unknown command " << verb;
    return RanksStarted{};
  }

  static std::uint32_t Number(const std::string& text) {
    return static_cast<std::uint32_t>(std::stoul(text));
  }

  static std::vector<wire::RankPlace> NoPlaces() { return {}; }
  std::vector<wire::RankPlace> Places() const {
    std::vector<wire::RankPlace> places;
    for (const RankId rank : ranks_) {
      wire::RankPlace& place = places.emplace_back();
      place.set_rank(rank);
      place.set_pid(100 + rank);
    }
    return places;
  }

  AgentEvent Launcher(const Command& command) {
    LauncherSaid said;
    wire::Header& header = *said.envelope.mutable_header();
    header.set_slot(Number(command.Value("slot", std::to_string(id_.slot))));
    header.set_attempt(Number(command.Value("attempt", std::to_string(id_.attempt))));
    header.set_epoch(Number(command.Value("epoch", std::to_string(epoch_))));
    header.set_migration(Number(command.Value("migration", std::to_string(id_.migration))));
    const std::string& body = command.Word(1);
    const auto fill = [&](wire::Launch& launch) {
      launch.set_size(4);
      launch.set_kvs_prefix("kvs");
      launch.set_process_mapping("(vector,(0,2,2))");
      for (const RankId rank : ranks_) launch.add_ranks()->set_rank(rank);
    };
    if (body == "launch") fill(*said.envelope.mutable_launch());
    if (body == "prepare_target") fill(*said.envelope.mutable_prepare_target()->mutable_launch());
    if (body == "prepare_source") {
      said.envelope.mutable_prepare_source()->set_image_port(7000);
      said.envelope.mutable_prepare_source()->add_sockets()->set_sockets("2 77");
      said.envelope.mutable_prepare_source()->set_candidate_attempt(
          Number(command.Value("candidate", "1")));
    }
    if (body == "notice") said.envelope.mutable_notice();
    if (body == "agree")
      said.envelope.mutable_agree()->set_stop_call(Number(command.Value("stop_call")));
    if (body == "check") said.envelope.mutable_check();
    if (body == "teardown") said.envelope.mutable_teardown();
    if (body == "cancel_quiesce")
      said.envelope.mutable_cancel_quiesce()->set_reason(command.Value("reason"));
    if (body == "dump") said.envelope.mutable_dump()->set_candidate_attempt(1);
    if (body == "dump_held") {
      said.envelope.mutable_dump()->set_candidate_attempt(2);
      said.envelope.mutable_dump()->set_held(true);
      said.envelope.mutable_dump()->set_timeout_ms(8000);
    }
    if (body == "restore") {
      said.envelope.mutable_restore()->set_timeout_ms(9000);
      for (const RankId rank : ranks_) {
        wire::RankImage& image = *said.envelope.mutable_restore()->add_images();
        image.set_rank(rank);
        image.set_generation(1);
        image.set_thread(2 + rank);
        image.set_signal(12);
      }
    }
    if (body == "continue") {
      wire::Continue& message = *said.envelope.mutable_continue_ranks();
      message.set_process_mapping("(vector,(0,2,2))");
      if (command.values.contains("level")) {
        wire::EnvironmentVariable& variable = *message.add_environment();
        variable.set_name("LEVEL");
        variable.set_value(command.Value("level"));
      }
    }
    if (body == "name_reply") {
      wire::NameReply& reply = *said.envelope.mutable_name_reply();
      reply.set_request(Number(command.Word(2)));
      reply.set_ok(command.values.contains("port"));
      reply.set_port(command.Value("port"));
    }
    if (body == "running") said.envelope.mutable_running();
    if (body == "source_lost") said.envelope.mutable_source_lost();
    if (body == "discard") said.envelope.mutable_discard();
    if (body == "release") said.envelope.mutable_release();
    if (body == "terminate") said.envelope.mutable_terminate()->set_reason("the end");
    if (body == "fence_out") {
      said.envelope.mutable_fence_out()->set_generation(Number(command.Word(2)));
      said.envelope.mutable_fence_out()->set_number(Number(command.Word(3)));
    }
    EXPECT_NE(said.envelope.body_case(), wire::Envelope::BODY_NOT_SET) << body;
    return said;
  }

  AgentEvent Rank(const Command& command) {
    RankSaid said{.rank = Number(command.Word(1)), .message = {}};
    rank_link::Message& fields = said.message.fields;
    const std::string& kind = command.Word(2);
    for (auto value : {Kind::kHello, Kind::kNoticed, Kind::kArrived, Kind::kChecked, Kind::kParked,
                       Kind::kRunning, Kind::kResumed, Kind::kFinalizing, Kind::kSockets}) {
      if (kind == rank_link::Name(value)) fields.kind = value;
    }
    EXPECT_NE(fields.kind, Kind{}) << kind;
    fields.passed = Number(command.Value("passed", "0"));
    fields.migration = Number(command.Value("migration", "0"));
    fields.refused = command.values.contains("refused");
    said.message.text = command.Value("refused", command.Value("text"));
    if (fields.kind == Kind::kHello) {
      fields.thread = 2 + said.rank;
      fields.signal = 12;
    }
    return said;
  }

  ProxyId id_;
  Epoch epoch_ = 1;
  std::vector<RankId> ranks_;
  std::unique_ptr<Agent> agent_;
};

class AgentTranscript : public testing::TestWithParam<std::string> {};

TEST_P(AgentTranscript, Agrees) {
  World world;
  RunTranscript(GetParam(), [&](const Command& command) { return world.Run(command); });
}

INSTANTIATE_TEST_SUITE_P(Files, AgentTranscript, testing::ValuesIn(TranscriptsIn("agent")),
                         TranscriptName);

}  // namespace
}  // namespace xmpi::core
