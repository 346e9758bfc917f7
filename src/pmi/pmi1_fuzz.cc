// libFuzzer target: three ranks in two slots send arbitrary bytes. A line of the input begins with
// the digit of the rank that sends the rest, so the corpus can be read and written by hand.
//
//   clang++ -std=c++23 -g -O1 -fsanitize=fuzzer,address -I src src/pmi/pmi1_fuzz.cc
//     src/pmi/{hub,kvs,mapping,pmi1,server,testing}.cc src/base/error.cc
//
// Beyond not crashing: replies are whole lines (Job checks it), a rank that has not spoken is never
// closed, a slot never holds more generations than it may, and a fence opens only in order.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "pmi/limits.h"
#include "pmi/testing.h"

namespace {

constexpr xmpi::RankId kRanks = 3;

void CheckJob(xmpi::pmi::Job& job) {
  for (xmpi::RankId rank = 0; rank < kRanks; ++rank) {
    XMPI_CHECK(job.ServerOf(rank).live_generations() <= xmpi::pmi::kMaxLiveGenerations);
    job.said[rank].clear();
  }
  for (std::size_t i = 1; i < job.opened.size(); ++i) {
    XMPI_CHECK(job.opened[i - 1] < job.opened[i]);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  xmpi::pmi::Job job({.slots = {{0, 1}, {2}}, .universe_size = 3});
  bool spoke[kRanks] = {};
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end == rest.npos ? end : end + 1);
    rest.remove_prefix(line.size());
    const xmpi::RankId rank = static_cast<unsigned char>(line[0]) % kRanks;
    spoke[rank] = true;
    job.Feed(rank, line.substr(1, line.size() / 2));
    if (line.size() > 1 + line.size() / 2) job.Feed(rank, line.substr(1 + line.size() / 2));
    CheckJob(job);
  }
  for (const std::string& error : job.errors) {
    for (xmpi::RankId rank = 0; rank < kRanks; ++rank) {
      XMPI_CHECK(spoke[rank] || !error.starts_with("rank " + std::to_string(rank) + ": PMI:"));
    }
  }
  return 0;
}
