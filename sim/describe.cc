#include "sim/describe.h"

#include <format>

namespace xmpi::sim {
namespace {

struct EventWords {
  std::string operator()(const core::StartJob&) const { return "start"; }
  std::string operator()(const core::ProxyMessage& event) const {
    return std::format("{}: {}", ToString(event.from), Describe(event.envelope));
  }
  std::string operator()(const core::ProxyLost& event) const {
    return std::format("proxy {} is lost: {}", ToString(event.proxy), event.reason);
  }
  std::string operator()(const core::OutputDrained& event) const {
    return std::format("output of {} is drained", ToString(event.proxy));
  }
  std::string operator()(const core::TimerExpired& event) const {
    return std::format("deadline of {}", Name(event.timer.step));
  }
  std::string operator()(const core::EvacuateOrder& event) const {
    return std::format("order {}: evacuate {}{}", event.request, event.node,
                       event.to ? " to " + *event.to : "");
  }
  std::string operator()(const core::CancelOrder& event) const {
    return std::format("order {}: cancel", event.request);
  }
  std::string operator()(const core::EndOrder& event) const { return "end: " + event.reason; }
};

}  // namespace

std::string Describe(const wire::Envelope& envelope) {
  const auto* field =
      wire::Envelope::descriptor()->FindFieldByNumber(static_cast<int>(envelope.body_case()));
  if (field == nullptr) return "nothing";
  std::string body;
  if (!envelope.has_launch() && !envelope.has_prepare_target() && !envelope.has_proxy_hello())
    body = envelope.GetReflection()->GetMessage(envelope, field).ShortDebugString();
  const wire::Header& header = envelope.header();
  return std::format("{} {{{}}} epoch {} migration {} attempt {}", std::string(field->name()), body,
                     header.epoch(), header.migration(), header.attempt());
}

std::string Describe(const core::Event& event) { return std::visit(EventWords{}, event); }

std::string Describe(const core::Record& record) {
  std::string text = record.name;
  for (const auto& [key, value] : record.fields) {
    const auto* number = std::get_if<std::int64_t>(&value);
    text +=
        std::format(" {}={}", key, number ? std::to_string(*number) : std::get<std::string>(value));
  }
  return text;
}

}  // namespace xmpi::sim
