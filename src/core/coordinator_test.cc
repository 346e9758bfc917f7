// The launcher's machine against transcripts: one per phase and outcome, and one that walks the
// sixteen steps of the paper's section 4.3.
#include "core/coordinator.h"

#include <gtest/gtest.h>

#include <array>
#include <format>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>

#include "core/transcript.h"

namespace xmpi::core {
namespace {

std::string Seconds(std::chrono::milliseconds time) {
  return std::format("{}s", static_cast<double>(time.count()) / 1000);
}

std::string Describe(const wire::Header& header) {
  return std::format("slot={} epoch={} migration={} attempt={}", header.slot(), header.epoch(),
                     header.migration(), header.attempt());
}

std::string Describe(const wire::Envelope& envelope) {
  const auto* field =
      wire::Envelope::descriptor()->FindFieldByNumber(static_cast<int>(envelope.body_case()));
  std::string body;
  if (envelope.has_launch() || envelope.has_prepare_target()) {
    const auto& launch =
        envelope.has_launch() ? envelope.launch() : envelope.prepare_target().launch();
    for (const auto& rank : launch.ranks()) body += std::format(" {}", rank.rank());
    body = " ranks" + body;
  } else {
    body = envelope.GetReflection()->GetMessage(envelope, field).ShortDebugString();
    if (!body.empty()) body = " " + body;
  }
  return std::format("{}{} ({})", std::string(field->name()), body, Describe(envelope.header()));
}

std::string Describe(const MigrationResult& result) {
  if (result.ok && result.from.empty()) return "done";
  if (result.ok && result.ranks.empty()) return "nothing is there: " + result.reason;
  if (result.ok) {
    std::string ranks;
    for (const MovedRank& rank : result.ranks)
      ranks += std::format(" {}:{}->{}", rank.rank, rank.pid_before, rank.pid_after);
    return std::format("moved slot {} {} -> {} ranks{}", result.slot, result.from, result.to,
                       ranks);
  }
  return std::format("not moved: {}", result.reason);
}

struct Printer {
  std::string operator()(const StartProxy& action) const {
    return std::format("start proxy {} on {}", ToString(action.proxy), action.node);
  }
  std::string operator()(const SendMessage& action) const {
    return std::format("-> {}: {}", ToString(action.to), Describe(action.envelope));
  }
  std::string operator()(const StopProxy& action) const {
    return std::format("stop proxy {}", ToString(action.proxy));
  }
  std::string operator()(const StartTimer& action) const {
    constexpr std::string_view kKinds[] = {"start", "step", "end"};
    const bool step = action.timer.kind == TimerId::Kind::kStep;
    return std::format("timer {}{} {}", kKinds[static_cast<int>(action.timer.kind)],
                       step ? std::format(" {}", Name(action.timer.step)) : "",
                       Seconds(action.after));
  }
  std::string operator()(const DrainOutput& action) const {
    return std::format("drain output of {}", ToString(action.proxy));
  }
  std::string operator()(const FeedInput& action) const {
    return std::format("input of slot {} {}", action.slot, action.hold ? "held" : "flows");
  }
  std::string operator()(const Record& record) const {
    std::string text = "log " + record.name;
    for (const auto& [key, value] : record.fields) {
      text += std::format(" {}=", key);
      if (const auto* number = std::get_if<std::int64_t>(&value))
        text += std::to_string(*number);
      else
        text += std::get<std::string>(value);
    }
    return text;
  }
  std::string operator()(const Accepted& action) const {
    return std::format("accepted {} as migration {}", action.request, action.migration);
  }
  std::string operator()(const Answer& action) const {
    return std::format("answer {}: {}", action.request, Describe(action.result));
  }
  std::string operator()(const Tell& action) const { return "tell: " + action.text; }
  std::string operator()(const EndJob& action) const {
    return std::format("end job with code {}", action.exit_code);
  }
};

class World {
 public:
  std::string Run(const Command& command) {
    if (command.Word(0) == "job") return Job(command);
    if (command.Word(0) == "quietly") return Quietly(command);
    if (command.Word(0) == "state") return State();
    std::string answer;
    for (const Event& event : Events(command)) answer += Feed(event);
    return answer;
  }

 private:
  std::string Feed(const Event& event) {
    now_us_ += 1000;
    std::string answer;
    for (const Action& action : coordinator_->On(event, now_us_))
      answer += std::visit(Printer{}, action) + "\n";
    return answer;
  }

  // job node1:2 node2:2 spares=node3,node4
  std::string Job(const Command& command) {
    JobPlan plan;
    plan.job = "j";
    RankId rank = 0;
    for (std::size_t i = 1; i < command.words.size(); ++i) {
      const auto colon = command.words[i].find(':');
      SlotPlan slot;
      slot.node = command.words[i].substr(0, colon);
      for (int n = std::stoi(command.words[i].substr(colon + 1)); n > 0; --n)
        slot.ranks.emplace_back().set_rank(rank++);
      plan.slots.push_back(std::move(slot));
    }
    std::istringstream spares(command.Value("spares"));
    for (std::string spare; std::getline(spares, spare, ',');) plan.spares.push_back(spare);
    coordinator_ = std::make_unique<Coordinator>(std::move(plan));
    return "";
  }

  // quietly running | prepared | parked | moved: brings the job there without showing the way.
  std::string Quietly(const Command& command) {
    const std::string& goal = command.Word(1);
    const auto run = [&](const std::string& line) {
      for (const Event& event : Events(ParseCommand(line))) Feed(event);
    };
    run("start");
    for (SlotId slot = 0; slot < coordinator_->slots().size(); ++slot) {
      run(std::format("from {}.0.0 proxy_hello", slot));
      run(std::format("from {}.0.0 launched", slot));
    }
    run("all rank_hello");
    run("fence 1 1");
    if (goal == "running") return "";
    run("evacuate node1");
    run("from 0.1.1 proxy_hello");
    run("from 0.1.1 target_ready");
    run("from 0.0.0 source_ready candidate=1");
    if (goal == "prepared") return "";
    run("all noticed passed=5");
    run("all arrived");
    if (goal == "arrived") return "";
    run("all checked");
    run("all parked");
    if (goal == "parked") return "";
    run("from 0.0.0 dumped bytes=100");
    run("drained 0.0.0");
    if (goal == "dumped") return "";
    run("from 0.1.1 images_held");
    if (goal == "held") return "";
    run("from 0.1.1 restored");
    return "";
  }

  std::string State() {
    std::string text;
    for (SlotId slot = 0; slot < coordinator_->slots().size(); ++slot) {
      const SlotState& state = coordinator_->slots()[slot];
      text += std::format("slot {} on {} by {} epoch {}\n", slot, state.node, ToString(state.proxy),
                          state.epoch);
    }
    if (coordinator_->migration())
      text += std::format("migration {} in {}\n", coordinator_->migration()->id,
                          Name(coordinator_->migration()->step));
    return text;
  }

  std::vector<Event> Events(const Command& command) {
    const std::string& verb = command.Word(0);
    if (verb == "start") return {StartJob{}};
    if (verb == "evacuate") {
      EvacuateOrder order{.request = ++request_, .node = command.Word(1), .to = {}};
      if (command.values.contains("to")) order.to = command.Value("to");
      if (command.values.contains("within_s"))
        order.within = std::chrono::seconds(std::stoi(command.Value("within_s")));
      order.precopy = !command.values.contains("no_precopy");
      return {order};
    }
    if (verb == "cancel") return {CancelOrder{++request_}};
    if (verb == "end") return {EndOrder{std::stoi(command.Word(1)), command.Value("reason")}};
    if (verb == "lost")
      return {ProxyLost{Proxy(command.Word(1)), command.Value("reason", "silent")}};
    if (verb == "drained") return {OutputDrained{Proxy(command.Word(1))}};
    if (verb == "timer") return {Timer(command.Word(1))};
    if (verb == "fence") return Fence(command);
    if (verb == "all") return All(command);
    if (verb == "from") return {Message(Proxy(command.Word(1)), command.Word(2), command)};
    ADD_FAILURE() << "unknown command " << verb;
    return {};
  }

  static ProxyId Proxy(const std::string& text) {
    const auto numbers = ParseNumbers(text, '.');
    return {numbers.at(0), numbers.at(1), numbers.at(2)};
  }

  TimerExpired Timer(const std::string& kind) const {
    if (kind == "start") return {{.kind = TimerId::Kind::kStart}};
    if (kind == "end") return {{.kind = TimerId::Kind::kEnd}};
    const Migration& migration = *coordinator_->migration();
    return {{.kind = TimerId::Kind::kStep,
             .migration = migration.id,
             .attempt = migration.moves.front().candidate.attempt,
             .step = migration.step,
             .entry = migration.entries}};
  }

  std::vector<Event> Fence(const Command& command) {
    std::vector<Event> events;
    for (const SlotState& slot : coordinator_->slots()) {
      ProxyMessage message = Envelope(slot.proxy);
      message.envelope.mutable_fence_in()->set_generation(ParseNumbers(command.Word(1), ',')[0]);
      message.envelope.mutable_fence_in()->set_number(ParseNumbers(command.Word(2), ',')[0]);
      events.push_back(message);
    }
    return events;
  }

  // all VERB [ranks=0-3]: from each slot's proxy, for each rank.
  std::vector<Event> All(const Command& command) {
    std::vector<Event> events;
    const std::string& verb = command.Word(1);
    if (verb == "noticed") {
      for (const SlotState& slot : coordinator_->slots())
        events.push_back(Message(slot.proxy, verb, command));
      return events;
    }
    for (RankId rank = 0; rank < coordinator_->ranks().size(); ++rank) {
      Command one = command;
      one.values["rank"] = std::to_string(rank);
      const SlotId slot = coordinator_->ranks()[rank].slot;
      events.push_back(Message(coordinator_->slots()[slot].proxy, verb, one));
    }
    return events;
  }

  // With the header that this proxy would put on it now.
  ProxyMessage Envelope(const ProxyId& from) const {
    ProxyMessage message{.from = from, .envelope = {}};
    wire::Header& header = *message.envelope.mutable_header();
    header.set_slot(from.slot);
    header.set_attempt(from.attempt);
    const SlotState& slot = coordinator_->slots().at(from.slot);
    if (slot.proxy == from) header.set_epoch(slot.epoch);
    header.set_migration(coordinator_->migration() ? coordinator_->migration()->id
                                                   : from.migration);
    return message;
  }

  ProxyMessage Message(const ProxyId& from, const std::string& body, const Command& command) const {
    ProxyMessage message = Envelope(from);
    wire::Envelope& envelope = message.envelope;
    const RankId rank = ParseNumbers(command.Value("rank", "0"), ',').at(0);
    const std::string error = command.Value("error");
    if (command.values.contains("migration"))
      envelope.mutable_header()->set_migration(ParseNumbers(command.Value("migration"), ',')[0]);
    if (command.values.contains("epoch"))
      envelope.mutable_header()->set_epoch(ParseNumbers(command.Value("epoch"), ',')[0]);
    if (command.values.contains("attempt"))
      envelope.mutable_header()->set_attempt(ParseNumbers(command.Value("attempt"), ',')[0]);
    if (body == "proxy_hello") {
      envelope.mutable_proxy_hello()->set_hostname("host");
      if (command.values.contains("lacks"))
        envelope.mutable_proxy_hello()->add_lost(command.Value("lacks"));
    } else if (body == "launched") {
      envelope.mutable_launched()->set_error(error);
      if (error.empty()) AddPlaces(from.slot, 100, *envelope.mutable_launched()->mutable_places());
    } else if (body == "rank_hello") {
      envelope.mutable_rank_hello()->set_rank(rank);
      envelope.mutable_rank_hello()->set_warning(command.Value("warning"));
    } else if (body == "rank_sockets") {
      envelope.mutable_rank_sockets()->set_rank(rank);
      envelope.mutable_rank_sockets()->set_sockets(command.Value("sockets"));
    } else if (body == "rank_finalizing") {
      envelope.mutable_rank_finalizing()->set_rank(rank);
    } else if (body == "rank_exited") {
      wire::RankExited& exited = *envelope.mutable_rank_exited();
      exited.set_rank(rank);
      exited.set_finalized(command.Value("finalized", "yes") == "yes");
      exited.set_wait_status(command.values.contains("signal")
                                 ? static_cast<std::uint32_t>(std::stoi(command.Value("signal")))
                                 : static_cast<std::uint32_t>(std::stoi(command.Value("code", "0")))
                                       << 8);
    } else if (body == "rank_aborted") {
      envelope.mutable_rank_aborted()->set_rank(rank);
      envelope.mutable_rank_aborted()->set_code(std::stoi(command.Value("code", "1")));
      envelope.mutable_rank_aborted()->set_message(command.Value("text"));
    } else if (body == "publish" || body == "lookup" || body == "unpublish") {
      wire::NameRequest& request = *envelope.mutable_name_request();
      request.set_rank(rank);
      request.set_operation(body == "publish"  ? wire::NameRequest::PUBLISH
                            : body == "lookup" ? wire::NameRequest::LOOKUP
                                               : wire::NameRequest::UNPUBLISH);
      request.set_name(command.Value("name"));
      request.set_port(command.Value("port"));
    } else if (body == "problem") {
      envelope.mutable_problem()->set_text(command.Value("text"));
    } else if (body == "resumed") {
      envelope.mutable_resumed()->set_rank(rank);
    } else if (body == "leaving") {
      envelope.mutable_leaving();
    } else if (body == "target_ready") {
      envelope.mutable_target_ready()->set_error(error);
      envelope.mutable_target_ready()->set_image_port(7000);
    } else if (body == "progress") {
      wire::Progress& progress = *envelope.mutable_progress();
      progress.set_bytes_per_s(std::stoull(command.Value("rate", "0")));
      progress.add_ranks()->set_total_bytes(std::stoull(command.Value("total")));
      progress.mutable_ranks(0)->set_done_bytes(std::stoull(command.Value("done")));
    } else if (body == "source_ready") {
      envelope.mutable_source_ready()->set_error(error);
      if (command.values.contains("predicted_ms")) {
        wire::Plan& plan = *envelope.mutable_source_ready()->mutable_plan();
        plan.set_predicted_us(std::stoull(command.Value("predicted_ms")) * 1000);
        plan.set_dirty_bytes(4096);
      }
      envelope.mutable_source_ready()->set_candidate_attempt(
          ParseNumbers(command.Value("candidate", "1"), ',')[0]);
    } else if (body == "noticed") {
      const std::uint64_t passed = std::stoull(command.Value("passed", "0"));
      std::size_t ranks = coordinator_->plan().slots[from.slot].ranks.size();
      if (command.values.contains("count")) ranks = std::stoul(command.Value("count"));
      for (std::size_t i = 0; i < ranks; ++i) envelope.mutable_noticed()->add_passed(passed + i);
    } else if (body == "arrived") {
      envelope.mutable_arrived()->set_rank(rank);
      envelope.mutable_arrived()->set_refusal(command.Value("refusal"));
    } else if (body == "checked") {
      envelope.mutable_checked()->set_rank(rank);
      envelope.mutable_checked()->set_refusal(command.Value("refusal"));
    } else if (body == "parked") {
      envelope.mutable_parked()->set_rank(rank);
    } else if (body == "fence_in") {
      envelope.mutable_fence_in()->set_generation(
          ParseNumbers(command.Value("generation"), ',')[0]);
      envelope.mutable_fence_in()->set_number(ParseNumbers(command.Value("number"), ',')[0]);
      if (command.values.contains("put")) {
        wire::KeyValue& put = *envelope.mutable_fence_in()->add_puts();
        put.set_key(command.Value("put"));
        put.set_value("here");
      }
    } else if (body == "running") {
      envelope.mutable_running()->set_rank(rank);
    } else if (body == "dumped") {
      envelope.mutable_dumped()->set_error(error);
      envelope.mutable_dumped()->set_candidate_attempt(
          ParseNumbers(command.Value("candidate", "1"), ',')[0]);
      envelope.mutable_dumped()->add_images()->set_bytes(std::stoull(command.Value("bytes", "0")));
    } else if (body == "images_held") {
      envelope.mutable_images_held()->set_error(error);
      if (command.values.contains("rank"))
        envelope.mutable_images_held()->add_images()->set_rank(rank);
    } else if (body == "restored") {
      envelope.mutable_restored()->set_error(error);
      if (error.empty()) AddPlaces(from.slot, 200, *envelope.mutable_restored()->mutable_places());
    } else {
      ADD_FAILURE() << "unknown message " << body;
    }
    return message;
  }

  void AddPlaces(SlotId slot, std::uint32_t first_pid, auto& places) const {
    for (const wire::RankSpec& rank : coordinator_->plan().slots[slot].ranks) {
      wire::RankPlace& place = *places.Add();
      place.set_rank(rank.rank());
      place.set_pid(first_pid + rank.rank());
    }
  }

  std::unique_ptr<Coordinator> coordinator_;
  std::int64_t now_us_ = 0;
  RequestId request_ = 0;
};

class CoordinatorTranscript : public testing::TestWithParam<std::string> {};

TEST_P(CoordinatorTranscript, Agrees) {
  World world;
  RunTranscript(GetParam(), [&](const Command& command) { return world.Run(command); });
}

// docs/architecture.md shows the transitions to people; it must show these.
TEST(Transitions, AreThoseOfTheDocument) {
  std::ifstream document(XMPI_DOCS "/architecture.md");
  ASSERT_TRUE(document);
  std::set<std::array<std::string, 3>> shown, real;
  bool inside = false;
  for (std::string line; std::getline(document, line);) {
    if (line.starts_with("<!-- transitions")) inside = true;
    if (line.starts_with("<!-- end of transitions")) inside = false;
    if (!inside || !line.starts_with("| ") || line.starts_with("| step")) continue;
    std::istringstream cells(line.substr(1));
    std::vector<std::string> row;
    for (std::string cell; std::getline(cells, cell, '|');) {
      std::erase(cell, ' ');
      row.push_back(cell);
    }
    constexpr std::string_view kTriggers[] = {"ready", "failed", "deadline", "retry", "reversed"};
    for (std::size_t i = 0; i < 5 && i + 1 < row.size(); ++i) {
      if (!row[i + 1].empty()) shown.insert({row[0], std::string(kTriggers[i]), row[i + 1]});
    }
  }
  for (const Transition& transition : Transitions())
    real.insert({std::string(Name(transition.step)), std::string(Name(transition.trigger)),
                 std::string(Name(transition.next))});
  EXPECT_EQ(shown, real);
}

INSTANTIATE_TEST_SUITE_P(Files, CoordinatorTranscript,
                         testing::ValuesIn(TranscriptsIn("coordinator")), TranscriptName);

}  // namespace
}  // namespace xmpi::core
