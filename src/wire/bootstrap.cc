#include "wire/bootstrap.h"

#include <chrono>
#include <cstdint>
#include <format>
#include <nlohmann/json.hpp>

namespace xmpi::wire {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kAddresses = 64;

// Reads fields one by one; the first that is missing or of the wrong kind is the one named.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {}

  std::string Text(const char* name) {
    const auto found = object_.find(name);
    if (found != object_.end() && found->is_string()) return found->get<std::string>();
    return Bad(name), "";
  }
  bool Flag(const char* name) {
    const auto found = object_.find(name);
    if (found != object_.end() && found->is_boolean()) return found->get<bool>();
    return Bad(name), false;
  }
  template <class T>
  T Number(const char* name) {
    const auto found = object_.find(name);
    if (found != object_.end() && found->is_number_unsigned() &&
        found->get<std::uint64_t>() <= std::numeric_limits<T>::max())
      return found->get<T>();
    return Bad(name), T{};
  }
  std::vector<std::string> Texts(const char* name) {
    std::vector<std::string> texts;
    const auto found = object_.find(name);
    if (found == object_.end() || !found->is_array() || found->size() > kAddresses)
      return Bad(name), texts;
    for (const Json& each : *found) {
      if (!each.is_string()) return Bad(name), texts;
      texts.push_back(each.get<std::string>());
    }
    return texts;
  }
  void Timeouts(LinkTimeouts* timeouts) {
    const auto found = object_.find("timeouts_ms");
    if (found == object_.end() || !found->is_object()) return Bad("timeouts_ms");
    for (const auto& [name, value] : found->items()) {
      std::chrono::milliseconds* timeout = timeouts->Find(name);
      if (timeout == nullptr || !value.is_number_unsigned() ||
          value.get<std::uint64_t>() > std::numeric_limits<std::int32_t>::max())
        return Bad("timeouts_ms");
      *timeout = std::chrono::milliseconds(value.get<std::int64_t>());
    }
  }

  void Bad(const char* name) {
    if (bad_.empty()) bad_ = name;
  }
  const std::string& bad() const { return bad_; }

 private:
  const Json& object_;
  std::string bad_;
};

}  // namespace

std::string ToLine(const Bootstrap& bootstrap) {
  Json timeouts = Json::object();
#define XMPI_TO_JSON(name, default_ms) timeouts[#name] = bootstrap.timeouts.name.count();
  XMPI_LINK_TIMEOUTS(XMPI_TO_JSON)
#undef XMPI_TO_JSON
  const Json object = {
      {"version", bootstrap.version},       {"job", bootstrap.job},
      {"slot", bootstrap.proxy.slot},       {"migration", bootstrap.proxy.migration},
      {"attempt", bootstrap.proxy.attempt}, {"node", bootstrap.node},
      {"addresses", bootstrap.addresses},   {"port", bootstrap.port},
      {"secret", bootstrap.secret_hex},     {"timeouts_ms", timeouts},
      {"interface", bootstrap.interface},   {"port_range", bootstrap.port_range},
      {"carry_files", bootstrap.carry_files}, {"log_level", bootstrap.log_level},
      {"fault", bootstrap.fault}};
  return object.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

Result<Bootstrap> ParseBootstrap(std::string_view line) {
  if (line.size() > kBootstrapBytes)
    return Fail(ErrorCode::kProtocol, std::format("a bootstrap line of {} bytes", line.size()));
  const Json object = Json::parse(line, nullptr, false);
  if (!object.is_object())
    return Fail(ErrorCode::kProtocol,
                "the first line on standard input is no bootstrap line of xmpiexec");
  Fields fields(object);
  Bootstrap bootstrap{.version = fields.Text("version"),
                      .job = fields.Text("job"),
                      .proxy = {.slot = fields.Number<SlotId>("slot"),
                                .migration = fields.Number<MigrationId>("migration"),
                                .attempt = fields.Number<AttemptId>("attempt")},
                      .node = fields.Text("node"),
                      .addresses = fields.Texts("addresses"),
                      .port = fields.Number<std::uint16_t>("port"),
                      .secret_hex = fields.Text("secret"),
                      .interface = fields.Text("interface"),
                      .port_range = fields.Text("port_range"),
                      .carry_files = fields.Flag("carry_files"),
                      .log_level = fields.Text("log_level"),
                      .fault = fields.Text("fault")};
  fields.Timeouts(&bootstrap.timeouts);
  if (bootstrap.job.empty() || bootstrap.job.size() > limits::kJobNameBytes) fields.Bad("job");
  if (bootstrap.addresses.empty()) fields.Bad("addresses");
  if (bootstrap.port == 0) fields.Bad("port");
  if (!fields.bad().empty())
    return Fail(ErrorCode::kProtocol,
                std::format("the bootstrap line has no usable field '{}'", fields.bad()));
  return bootstrap;
}

}  // namespace xmpi::wire
