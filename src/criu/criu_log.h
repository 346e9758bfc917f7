// What CRIU wrote, made fit for an error message. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace xmpi::criu {

// CRIU's error lines without their time stamps and source positions, at most `limit` of them, the
// first ones (the cause comes first), joined with "; ". Empty when there is none.
std::string ErrorLines(std::string_view log, std::size_t limit = 4);

// The end of a long log, from the begin of a line.
std::string LogTail(std::string_view log, std::size_t limit_bytes);

}  // namespace xmpi::criu
