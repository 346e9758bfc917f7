// Messages on an image connection that are no part of an image: what the source tells of itself
// and its ranks before anybody stops (facts), and what the target says to that (findings). Each is
// one text in one or more chunks of a kind of its own, in order. What is in it is not known here.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "image/chunk.h"

namespace xmpi::image {

// A thousand ranks with a hundred files each fit.
inline constexpr std::uint64_t kMaxMessageBytes = 32u << 20;

Result<> SendMessage(const WriteAll& write, ChunkKind kind, std::string_view text);

// Puts the chunks of one message together. kProtocol for one that is none of it.
class MessageReader {
 public:
  // Whether the message is whole; then text() is it.
  Result<bool> Accept(const Chunk& chunk);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Awaits one whole message of this kind. A refusal instead is kRefused.
Result<std::string> ReceiveMessage(const ReadAll& read, ChunkKind kind);

// The target's answer to the source's facts.
using AnswerFacts = std::function<Result<std::string>(const std::string& facts)>;

}  // namespace xmpi::image
