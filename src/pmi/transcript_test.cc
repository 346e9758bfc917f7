// What real MPICH clients and their own process manager said to each other, replayed against our
// engines: at each line to a rank, our Servers must have said exactly that, no later and no more.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "pmi/mapping.h"
#include "pmi/testing.h"

namespace xmpi::pmi {
namespace {

constexpr std::string_view kTopologyFile = "/tmp/topology.xml";

struct Line {
  RankId rank = 0;
  bool from_rank = false;
  std::string text;
};

struct Transcript {
  std::vector<std::vector<RankId>> slots;
  int universe_size = -1;  // Hydra's answer when nothing was asked for
  std::vector<int> appnums;
  std::vector<Line> lines;
};

std::string Replace(std::string text, std::string_view from, std::string_view to) {
  if (const auto at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

void ReadSlots(std::istringstream& words, Transcript& transcript) {
  for (std::string slot; words >> slot;) {
    transcript.slots.emplace_back();
    std::istringstream ranks(slot);
    for (std::string rank; std::getline(ranks, rank, ',');) {
      transcript.slots.back().push_back(std::stoul(rank));
    }
  }
}

Transcript Read(const std::filesystem::path& path) {
  Transcript transcript;
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    std::istringstream words(text);
    std::string kind, mark;
    Line line;
    words >> kind;
    if (kind == "slots") ReadSlots(words, transcript);
    if (kind == "universe") words >> transcript.universe_size;
    for (int appnum; kind == "appnums" && words >> appnum;) transcript.appnums.push_back(appnum);
    if (kind != "rank") continue;
    words >> line.rank >> mark >> std::ws;
    line.from_rank = mark == ">";
    std::getline(words, line.text);
    transcript.lines.push_back(line);
  }
  return transcript;
}

JobFacts FactsOf(const Transcript& transcript) {
  JobFacts facts;
  facts.slots = transcript.slots;
  facts.appnums = transcript.appnums;
  facts.universe_size = transcript.universe_size;
  facts.keys = {{"PMI_hwloc_xmlfile", std::string(kTopologyFile)}};
  return facts;
}

// A mapping may be written in several ways; it must say the same.
void ExpectSame(std::string ours, std::string theirs, std::size_t job_size) {
  for (std::string* answer : {&ours, &theirs}) {
    const auto begin = answer->find("(vector"), end = answer->rfind(')');
    if (begin == std::string::npos) continue;
    const auto slots = ParseMapping(answer->substr(begin, end + 1 - begin), job_size);
    ASSERT_TRUE(slots) << slots.error().message;
    std::string plain;
    for (const SlotId slot : *slots) plain += std::to_string(slot) + ",";
    answer->replace(begin, end + 1 - begin, plain);
  }
  EXPECT_EQ(ours, theirs);
}

class TranscriptTest : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(TranscriptTest, WeSayWhatHydraSaid) {
  const Transcript transcript = Read(GetParam());
  ASSERT_FALSE(transcript.lines.empty());
  Job job(FactsOf(transcript));
  std::map<RankId, std::string> kvs_name;
  bool aborted = false;
  for (const Line& line : transcript.lines) {
    SCOPED_TRACE("rank " + std::to_string(line.rank) + ": " + line.text);
    if (line.from_rank) {
      job.Feed(line.rank, Replace(line.text, "=KVS", "=" + kvs_name[line.rank]) + "\n");
      aborted = aborted || line.text.starts_with("cmd=abort");
      ASSERT_TRUE(job.errors.empty()) << job.errors.front();
      continue;
    }
    std::deque<std::string>& said = job.said[line.rank];
    ASSERT_FALSE(said.empty()) << "we have not answered yet";
    std::string answer = said.front();
    said.pop_front();
    if (answer.contains(" kvsname=")) {
      const std::string name = answer.substr(answer.find(" kvsname=") + 9);
      EXPECT_NE(name, kvs_name[line.rank]) << "a fresh name for each generation";
      kvs_name[line.rank] = name;
      answer = Replace(answer, name, "KVS");
    }
    ExpectSame(Replace(answer, kTopologyFile, "HWLOC"), line.text, job.slot_of_rank().size());
  }
  EXPECT_EQ(aborted, !job.aborts.empty());
  for (const auto& [rank, said] : job.said) {
    EXPECT_TRUE(aborted || said.empty()) << "rank " << rank << " hears more: " << said.front();
  }
}

std::vector<std::filesystem::path> Files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(XMPI_PMI_TESTDATA)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

INSTANTIATE_TEST_SUITE_P(Recorded, TranscriptTest, testing::ValuesIn(Files()),
                         [](const auto& info) { return info.param.stem().string(); });

TEST(Transcripts, AreThere) { EXPECT_GE(Files().size(), 9u); }

TEST(Transcripts, AbortCarriesCodeAndMessage) {
  const Transcript transcript = Read(std::filesystem::path(XMPI_PMI_TESTDATA) / "abort.txt");
  Job job(FactsOf(transcript));
  for (const Line& line : transcript.lines) {
    if (line.from_rank) job.Feed(line.rank, line.text + "\n");
  }
  EXPECT_EQ(job.aborts,
            (std::vector<Aborted>{
                {1, 7, "application called MPI_Abort(MPI_COMM_WORLD, 7) - process 1"}}));
}

}  // namespace
}  // namespace xmpi::pmi
