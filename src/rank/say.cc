#include "rank/say.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "rank/session.h"

namespace xmpi::rank {
namespace {

constexpr std::size_t kLineLimit = 1024;
int say_rank = -1;

void WriteLine(const char* line, std::size_t size) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line, size);
}

void SayV(const char* format, std::va_list arguments) {
  char line[kLineLimit];
  int used = say_rank < 0 ? std::snprintf(line, sizeof line, "xmpi: ")
                          : std::snprintf(line, sizeof line, "xmpi: rank %d: ", say_rank);
  used += std::vsnprintf(line + used, sizeof line - used, format, arguments);
  if (used > static_cast<int>(sizeof line) - 2) used = sizeof line - 2;
  line[used] = '\n';
  WriteLine(line, used + 1);
}

// A line built without the heap, locale or stdio, for the signal handler.
class PlainLine {
 public:
  PlainLine& operator<<(const char* text) {
    while (*text != '\0' && used_ < sizeof line_ - 1) line_[used_++] = *text++;
    return *this;
  }
  PlainLine& operator<<(std::uint64_t number) {
    char digits[21];
    char* at = digits + sizeof digits - 1;
    *at = '\0';
    do *--at = static_cast<char>('0' + number % 10);
    while ((number /= 10) != 0);
    return *this << at;
  }
  void Write() {
    line_[used_++] = '\n';
    WriteLine(line_, used_);
  }

 private:
  char line_[256];
  std::size_t used_ = 0;
};

}  // namespace

Debug debug;

void ReadDebug() {
  debug = {};
  const char* words = std::getenv("XMPI_DEBUG");
  while (words != nullptr && *words != '\0') {
    const std::size_t size = std::strcspn(words, ",");
    const std::string_view word(words, size);
    if (word == "trace")
      debug.trace = true;
    else if (word == "thread")
      debug.thread = true;
    else
      Say("XMPI_DEBUG: unknown word \"%.*s\" (known: trace, thread)", static_cast<int>(size),
          words);
    words += size + (words[size] == ',' ? 1 : 0);
  }
}

void SetSayRank(int rank) { say_rank = rank; }

void Say(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  SayV(format, arguments);
  va_end(arguments);
}

void Trace(const char* format, ...) {
  if (!debug.trace) return;
  std::va_list arguments;
  va_start(arguments, format);
  SayV(format, arguments);
  va_end(arguments);
}

void TraceMessage(const rank_link::Message& message, State from, State to, bool stale) {
  if (!debug.trace) return;
  PlainLine line;
  line << "xmpi: rank " << static_cast<std::uint64_t>(say_rank < 0 ? 0 : say_rank) << ": "
       << rank_link::Name(message.kind) << " migration=" << std::uint64_t{message.migration};
  if (message.stop_call != 0) line << " stop_call=" << message.stop_call;
  line << " " << Name(from) << " -> " << Name(to) << (stale ? " (stale, ignored)" : "");
  line.Write();
}

void Die(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  SayV(format, arguments);
  va_end(arguments);
  if (session.open()) PMPI_Abort(session.world(), EXIT_FAILURE);
  _exit(EXIT_FAILURE);
}

}  // namespace xmpi::rank
