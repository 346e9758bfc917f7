// Fuzz target: arbitrary words as a command line, arbitrary text as a hostfile, through the parser
// and, if it takes them, through the plan. Words are parted by zero bytes. Whatever comes, the
// answer is a plan whose ranks are all placed, or an Error with a text.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "launcher/hosts.h"
#include "launcher/options.h"
#include "launcher/plan.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace xmpi::launcher;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\0', begin), text.size());
    words.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (const auto hosts = ParseHostfile(text); !hosts) XMPI_CHECK(!hosts.error().message.empty());
  const auto options = ParseOptions(words);
  if (!options) {
    XMPI_CHECK(!options.error().message.empty());
    return 0;
  }
  if (options->mode != Options::Mode::kRun) return 0;
  const Surroundings around{.environment = {{"PATH", "/bin"}},
                            .working_directory = "/home",
                            .hostname = "here",
                            .pid = 1};
  const auto plan = MakePlan(*options, options->hosts, around);
  if (!plan) {
    XMPI_CHECK(!plan.error().message.empty());
    return 0;
  }
  std::size_t ranks = 0;
  for (const auto& slot : plan->slots) {
    XMPI_CHECK(!slot.ranks.empty());
    ranks += slot.ranks.size();
  }
  XMPI_CHECK(ranks >= options->segments.size() && ranks <= kRanksLimit);
  return 0;
}
