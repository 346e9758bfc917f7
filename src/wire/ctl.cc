#include "wire/ctl.h"

#include <format>
#include <nlohmann/json.hpp>

namespace xmpi::wire {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kNodeBytes = 255;

std::string Line(const char* kind, const Json& body) {
  Json object;
  object[kind] = body;
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<std::string> NodeOf(const Json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end() || !found->is_string() ||
      found->get_ref<const std::string&>().empty() ||
      found->get_ref<const std::string&>().size() > kNodeBytes)
    return Fail(ErrorCode::kProtocol, std::format("the request has no usable '{}'", field));
  return found->get<std::string>();
}

Result<bool> FlagOf(const Json& object, const char* field, bool otherwise) {
  const auto found = object.find(field);
  if (found == object.end()) return otherwise;
  if (!found->is_boolean())
    return Fail(ErrorCode::kProtocol, std::format("'{}' is neither true nor false", field));
  return found->get<bool>();
}

Result<std::optional<std::int64_t>> WithinOf(const Json& object) {
  const auto found = object.find("within_ms");
  if (found == object.end()) return std::nullopt;
  constexpr std::int64_t kMost = 7ll * 24 * 3600 * 1000;
  if (!found->is_number_integer() || *found < 1 || *found > kMost)
    return Fail(ErrorCode::kProtocol, std::format("'within_ms' is not from 1 to {}", kMost));
  return found->get<std::int64_t>();
}

}  // namespace

std::string ToLine(const CtlRequest& request) {
  Json object;
  switch (request.command) {
    case CtlRequest::Command::kStatus:
      object["command"] = "status";
      break;
    case CtlRequest::Command::kCancel:
      object["command"] = "cancel";
      break;
    case CtlRequest::Command::kEvacuate:
      object["command"] = "evacuate";
      object["node"] = request.node;
      if (request.to) object["to"] = *request.to;
      if (request.within_ms) object["within_ms"] = *request.within_ms;
      if (!request.precopy) object["precopy"] = false;
      break;
  }
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<CtlRequest> ParseCtlRequest(std::string_view line) {
  if (line.size() > kCtlRequestBytes)
    return Fail(ErrorCode::kProtocol,
                std::format("a request of more than {} bytes", kCtlRequestBytes));
  const Json object = Json::parse(line, nullptr, false);
  const auto command = object.is_object() ? object.find("command") : object.end();
  if (!object.is_object() || command == object.end() || !command->is_string())
    return Fail(ErrorCode::kProtocol, "a request is one JSON object with a 'command'");
  if (*command == "status") return CtlRequest{.command = CtlRequest::Command::kStatus};
  if (*command == "cancel") return CtlRequest{.command = CtlRequest::Command::kCancel};
  if (*command != "evacuate")
    return Fail(ErrorCode::kProtocol,
                std::format("no command is called '{}'", command->get<std::string>()));
  CtlRequest request{.command = CtlRequest::Command::kEvacuate};
  XMPI_ASSIGN_OR_RETURN(request.node, NodeOf(object, "node"));
  if (object.contains("to")) {
    XMPI_ASSIGN_OR_RETURN(request.to, NodeOf(object, "to"));
  }
  XMPI_ASSIGN_OR_RETURN(request.within_ms, WithinOf(object));
  XMPI_ASSIGN_OR_RETURN(request.precopy, FlagOf(object, "precopy", true));
  return request;
}

std::string CtlEvent(const Json& event) { return Line("event", event); }
std::string CtlResult(const Json& result) { return Line("result", result); }
std::string CtlError(std::string_view message) { return Line("error", std::string(message)); }

}  // namespace xmpi::wire
