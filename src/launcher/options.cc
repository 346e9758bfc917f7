#include "launcher/options.h"

#include <algorithm>
#include <format>

#include "launcher/option_table.h"

namespace xmpi::launcher {
namespace {

// `word` may have one dash or two.
const Option* FindOption(std::string_view word) {
  if (word.starts_with("--")) word.remove_prefix(1);
  const auto found = std::ranges::find_if(OptionRows(), [&](const Option& option) {
    return word == option.help.name || (!option.help.alias.empty() && word == option.help.alias);
  });
  return found == OptionRows().end() ? nullptr : &*found;
}

std::size_t WordsOf(const Option& option, Values rest) {
  if (option.values >= 0) return static_cast<std::size_t>(option.values);
  if (rest.empty()) return 1;
  if (option.values == kPair) return rest[0].contains('=') ? 1 : 2;
  return rest[0] == "exec" ? 2 : 1;
}

std::string Place(std::size_t segment) {
  return segment == 0 ? "" : std::format(" (in the part after ':' number {})", segment);
}

class Parser {
 public:
  explicit Parser(Values arguments) : rest_(arguments) {}

  Result<Options> Parse() {
    do {
      Segment segment;
      XMPI_RETURN_IF_ERROR(ParseSegment(&segment));
      if (options_.mode != Options::Mode::kRun) return std::move(options_);
      options_.segments.push_back(std::move(segment));
    } while (more_);
    return std::move(options_);
  }

 private:
  Result<> ParseSegment(Segment* segment) {
    more_ = false;
    while (!rest_.empty() && rest_[0].starts_with('-') && rest_[0] != "--") {
      XMPI_RETURN_IF_ERROR(ParseOption(segment));
      if (options_.mode != Options::Mode::kRun) return {};
    }
    if (!rest_.empty() && rest_[0] == "--") rest_ = rest_.subspan(1);
    while (!rest_.empty() && rest_[0] != ":") {
      if (rest_[0].contains('\0'))
        return Fail(ErrorCode::kUsage, "an argument of the program holds a zero byte");
      segment->argv.push_back(rest_[0]);
      rest_ = rest_.subspan(1);
    }
    if (segment->argv.empty() || segment->argv[0].empty())
      return Fail(ErrorCode::kUsage,
                  std::format("no program is named{}; xmpiexec -n 4 PROGRAM ARGUMENTS... runs one, "
                              "xmpiexec -help shows all options",
                              Place(options_.segments.size())));
    if (rest_.empty()) return {};
    rest_ = rest_.subspan(1);
    more_ = true;
    return {};
  }

  Result<> ParseOption(Segment* segment) {
    const std::string& word = rest_[0];
    const Option* option = FindOption(word);
    if (option == nullptr)
      return Fail(ErrorCode::kUsage,
                  std::format("unknown option '{}'{}; xmpiexec -help shows what there is", word,
                              Place(options_.segments.size())));
    rest_ = rest_.subspan(1);
    const std::size_t words = WordsOf(*option, rest_);
    if (rest_.size() < words)
      return Fail(ErrorCode::kUsage,
                  std::format("{}{} needs {} behind it", word, Place(options_.segments.size()),
                              option->help.arguments));
    auto applied = option->apply({options_, *segment}, rest_.first(words));
    if (!applied)
      return Fail(ErrorCode::kUsage, std::format("{}{}: {}", word, Place(options_.segments.size()),
                                                 applied.error().message));
    rest_ = rest_.subspan(words);
    return {};
  }

  Values rest_;
  Options options_;
  bool more_ = false;
};

}  // namespace

Result<Options> ParseOptions(std::span<const std::string> arguments) {
  return Parser(arguments).Parse();
}

std::vector<OptionHelp> OptionTable() {
  std::vector<OptionHelp> rows;
  for (const Option& option : OptionRows()) rows.push_back(option.help);
  return rows;
}

std::string HelpText() {
  std::string text =
      "usage: xmpiexec [OPTIONS] PROGRAM [ARGUMENTS...] [: [OPTIONS] PROGRAM [ARGUMENTS...]]...\n"
      "Runs an MPI program on several hosts; its ranks can leave a host while it runs "
      "(xmpictl).\n\n";
  for (const OptionHelp& row : OptionTable()) {
    std::string left = std::string(row.name);
    if (!row.alias.empty()) left += std::format(", {}", row.alias);
    if (!row.arguments.empty()) left += std::format(" {}", row.arguments);
    text += std::format("  {:<30} {}\n", left, row.text);
  }
  text += "\nman xmpiexec tells the rest.\n";
  return text;
}

}  // namespace xmpi::launcher
