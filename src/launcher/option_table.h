// The table of xmpiexec's options: each row a name, what stands behind it, one line of help and
// what it does to the Options. The parser, -help and the test of the man page all go by it.
#pragma once

#include <span>
#include <string>

#include "base/error.h"
#include "launcher/options.h"

namespace xmpi::launcher {

using Values = std::span<const std::string>;

// What an option acts on: the whole and the segment it stands in.
struct Target {
  Options& options;
  Segment& segment;
};

struct Option {
  OptionHelp help;
  int values;  // words it takes; kPair takes NAME VALUE or NAME=VALUE, kShell `ssh` or `exec CMD`
  Result<> (*apply)(Target target, Values values);
};
inline constexpr int kPair = -1;
inline constexpr int kShell = -2;

std::span<const Option> OptionRows();

}  // namespace xmpi::launcher
