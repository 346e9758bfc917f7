#include "pmi/pmi1.h"

#include <algorithm>
#include <charconv>
#include <format>

#include "pmi/limits.h"

namespace xmpi::pmi {
namespace {

constexpr std::string_view kLinePrefix = "cmd=";
constexpr std::string_view kBlockPrefix = "mcmd=";
constexpr std::string_view kBlockEnd = "endcmd";

std::unexpected<Error> Malformed(std::string_view line, std::string_view why) {
  return Fail(ErrorCode::kProtocol, std::format("{}: {}", Quoted(line), why));
}

// Cuts the part before `separator` off `rest`; all of it if there is none.
std::string_view Take(std::string_view& rest, char separator) {
  const std::size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

}  // namespace

std::optional<std::string_view> MessageReader::NextLine() {
  const std::size_t end = buffer_.find('\n', scanned_);
  if (end == std::string::npos) {
    buffer_.erase(0, begin_);
    begin_ = 0;
    scanned_ = buffer_.size();
    return std::nullopt;
  }
  const std::string_view line = std::string_view(buffer_).substr(begin_, end - begin_);
  begin_ = scanned_ = end + 1;
  return line;
}

Result<std::optional<Message>> MessageReader::Next() {
  while (true) {
    const std::optional<std::string_view> line = NextLine();
    const std::string_view seen = line ? *line : std::string_view(buffer_);
    if (seen.size() > kMaxLineBytes) {
      return Malformed(seen, std::format("line longer than {} bytes", kMaxLineBytes));
    }
    if (!line) return std::nullopt;
    if (line->contains('\0')) return Malformed(*line, "a zero byte in a line");
    if (block_ && *line == kBlockEnd) {
      Message message{true, std::move(*block_)};
      block_.reset();
      return message;
    }
    if (block_) {
      *block_ += '\n';
      *block_ += *line;
      if (block_->size() > kMaxCommandBytes) {
        return Malformed(*block_, std::format("command longer than {} bytes", kMaxCommandBytes));
      }
    } else if (line->starts_with(kBlockPrefix)) {
      block_ = *line;
    } else {
      return Message{false, std::string(*line)};
    }
  }
}

void MessageReader::Clear() { *this = MessageReader(); }

Result<std::string_view> VerbOf(const Message& message) {
  std::string_view rest = message.text;
  const std::string_view prefix = message.multiline ? kBlockPrefix : kLinePrefix;
  if (!rest.starts_with(prefix)) return Malformed(rest, "does not begin with cmd= or mcmd=");
  rest.remove_prefix(prefix.size());
  return Take(rest, message.multiline ? '\n' : ' ');
}

Result<Fields> Fields::Parse(const Message& message, std::string_view text_field) {
  Fields fields;
  const char separator = message.multiline ? '\n' : ' ';
  std::string_view rest = message.text;
  Take(rest, separator);
  while (!rest.empty()) {
    const std::string_view before = rest;
    std::string_view value = Take(rest, separator);
    if (value.empty()) continue;
    const std::string_view key = Take(value, '=');
    if (key.empty()) return Malformed(message.text, "a value without a key");
    if (!message.multiline && key == text_field) {
      value = before.substr(std::min(key.size() + 1, before.size()));
      rest = {};
    }
    fields.fields_.emplace_back(key, value);
  }
  return fields;
}

std::optional<std::string_view> Fields::Find(std::string_view key) const {
  const auto found =
      std::ranges::find(fields_, key, &std::pair<std::string_view, std::string_view>::first);
  if (found == fields_.end()) return std::nullopt;
  return found->second;
}

Result<std::string_view> Fields::Need(std::string_view key) const {
  if (const auto value = Find(key)) return *value;
  return Fail(ErrorCode::kProtocol, std::format("no {}=", key));
}

Result<int> Fields::NeedInt(std::string_view key) const {
  XMPI_ASSIGN_OR_RETURN(const std::string_view text, Need(key));
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Fail(ErrorCode::kProtocol, std::format("{}= is not a number", key));
  }
  return value;
}

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text.substr(0, kMaxQuotedBytes)) {
    const bool plain = c >= ' ' && c <= '~' && c != '"' && c != '\\';
    quoted += plain ? std::string(1, c) : std::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return quoted + (text.size() > kMaxQuotedBytes ? "\"..." : "\"");
}

}  // namespace xmpi::pmi
