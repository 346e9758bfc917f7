// Operating errors as values. A Result<T> carries either a T or an Error whose message is written
// for the person who reads it: what happened, where (rank, slot, node, phase), what to try.
// Each layer adds one clause of context in front; a code exists only where a caller acts on it.
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace xmpi {

// What a program ends with for kUsage.
inline constexpr int kUsageExitCode = 2;

enum class ErrorCode {
  kFailed,       // nothing more to decide by
  kUsage,        // the user's words are wrong; exit code 2
  kUnreachable,  // a host or peer could not be reached, or went away
  kTimeout,      // it did not answer in time
  kRefused,      // the peer or a check said no; nothing was changed
  kProtocol,     // the peer broke the protocol; its connection is closed
};

struct Error {
  ErrorCode code = ErrorCode::kFailed;
  std::string message;
};

template <class T = void>
using Result = std::expected<T, Error>;

inline std::unexpected<Error> Fail(ErrorCode code, std::string message) {
  return std::unexpected(Error{code, std::move(message)});
}
inline std::unexpected<Error> Fail(std::string message) {
  return Fail(ErrorCode::kFailed, std::move(message));
}

// The text of the current errno behind `what`: "open /dev/shm: No space left on device".
Error ErrnoError(std::string_view what);

// `error` with one clause of context in front: "slot 1 on node2: <message>".
inline Error WithContext(std::string_view context, Error error) {
  error.message.insert(0, std::string(context) + ": ");
  return error;
}

}  // namespace xmpi

// Returns from the enclosing function with the error of `expression`, if it has one.
#define XMPI_RETURN_IF_ERROR(expression)                      \
  do {                                                        \
    if (auto xmpi_result = (expression); !xmpi_result)        \
      return std::unexpected(std::move(xmpi_result.error())); \
  } while (false)

#define XMPI_CONCAT_INNER(a, b) a##b
#define XMPI_CONCAT(a, b) XMPI_CONCAT_INNER(a, b)

// Declares or assigns `left` from the value of `expression`, or returns its error.
#define XMPI_ASSIGN_OR_RETURN(left, expression) \
  XMPI_ASSIGN_OR_RETURN_INNER(XMPI_CONCAT(xmpi_result_, __LINE__), left, expression)
#define XMPI_ASSIGN_OR_RETURN_INNER(temporary, left, expression)        \
  auto temporary = (expression);                                        \
  if (!temporary) return std::unexpected(std::move(temporary.error())); \
  left = std::move(*temporary)
