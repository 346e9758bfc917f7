// The PMI-1 wire form, without meaning: bytes of one rank's socket become messages (a line
// "cmd=VERB key=value ...\n", or the block "mcmd=VERB\nkey=value\n...endcmd\n"), and a message
// becomes fields. A MessageReader owns the bytes that do not make a message yet; Fields only points
// into the message it was parsed from. Nothing here knows a verb, and malformed input is an Error.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace xmpi::pmi {

struct Message {
  bool multiline = false;
  std::string text;  // the line without its newline; a block's lines joined by newlines, no endcmd
};

class MessageReader {
 public:
  void Append(std::string_view bytes) { buffer_ += bytes; }

  // The next whole message, or nothing until more bytes come. The same bytes give the same answers
  // however they were split. After an error the reader is of no use until Clear.
  Result<std::optional<Message>> Next();

  void Clear();

 private:
  std::optional<std::string_view> NextLine();

  std::string buffer_;
  std::size_t begin_ = 0;    // of the first line not taken yet
  std::size_t scanned_ = 0;  // no newline between begin_ and here
  std::optional<std::string> block_;
};

// VERB of "cmd=VERB ..." or "mcmd=VERB".
Result<std::string_view> VerbOf(const Message& message);

class Fields {
 public:
  // Fields are words without spaces. Only `text_field`, when it is not empty, takes all that
  // follows it on the line: PMI-1 has no quoting, and a value or a message may have spaces.
  static Result<Fields> Parse(const Message& message, std::string_view text_field);

  std::optional<std::string_view> Find(std::string_view key) const;
  Result<std::string_view> Need(std::string_view key) const;
  Result<int> NeedInt(std::string_view key) const;

 private:
  std::vector<std::pair<std::string_view, std::string_view>> fields_;
};

// A line of foreign text made fit for a message: cut, with unprintable bytes as \xNN.
std::string Quoted(std::string_view text);

}  // namespace xmpi::pmi
