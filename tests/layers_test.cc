// The dependency rule of docs/architecture.md, held against every #include of the tree.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

const fs::path kSource = fs::path(XMPI_SOURCE_DIR);

// A folder and the folders it may include from, its own among them.
const std::map<std::string, Names> kLayers = {
    {"base", {"base"}},
    {"wire", {"base", "wire"}},
    {"preflight", {"base", "wire", "os", "preflight"}},
    {"pmi", {"base", "pmi"}},
    {"image", {"base", "image"}},
    {"core", {"base", "wire", "pmi", "image", "core"}},
    {"os", {"base", "wire", "os"}},
    {"criu", {"base", "image", "os", "criu"}},
    {"launcher", {"base", "wire", "preflight", "pmi", "core", "os", "launcher"}},
    {"proxy", {"base", "wire", "preflight", "pmi", "image", "core", "os", "criu", "proxy"}},
    {"ctl", {"base", "wire", "preflight", "os", "ctl"}},
    {"rank", {"rank"}},
    {"sim", {"base", "wire", "pmi", "image", "core", "sim"}},
};

// What a folder may take from elsewhere one header at a time. The rank library needs libc and MPI
// only: its headers from elsewhere need no library.
const std::map<std::string, Names> kSingleHeaders = {
    {"rank", {"wire/rank_link.h", "base/check.h", "base/error.h"}},
    // The simulator's ranks are the real quiesce machine, which is as pure as core.
    {"sim", {"rank/quiesce_state.h"}},
};

// A pure machine has no clock, thread, chance, socket or process.
const Names kPure = {"core", "pmi", "image", "sim"};
const std::regex kImpure(
    R"(<(thread|mutex|future|atomic|condition_variable|random|ctime|asio.*|unistd\.h|fcntl\.h|poll\.h|sys/(socket|epoll|time)\.h|openssl/.*|spdlog/.*)>)");

// The simulator's outermost files spread whole runs over threads; a run itself knows of none.
const Names kSpreadsRuns = {"main.cc", "runner.cc"};

struct Include {
  fs::path file;
  std::string folder;  // that the including file is in
  std::string text;    // `"os/key.h"` or `<thread>`
};

bool IsTest(const fs::path& path) {
  const std::string name = path.stem();
  return name.ends_with("_test") || name.ends_with("_fuzz") || name.starts_with("testing") ||
         name.find("fake") != std::string::npos || name.find("fixture") != std::string::npos ||
         name.find("_test_") != std::string::npos;
}

void Collect(const fs::path& root, const std::string& folder, std::vector<Include>* includes) {
  static const std::regex line(R"(^\s*#\s*include\s+(["<][^">]+[">]))");
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string extension = entry.path().extension();
    if (extension != ".h" && extension != ".cc" && extension != ".c") continue;
    std::ifstream file(entry.path());
    for (std::string text; std::getline(file, text);) {
      std::smatch match;
      if (std::regex_search(text, match, line))
        includes->push_back({entry.path(), folder, match[1]});
    }
  }
}

std::vector<Include> AllIncludes() {
  std::vector<Include> includes;
  for (const auto& entry : fs::directory_iterator(kSource / "src")) {
    if (entry.is_directory()) Collect(entry.path(), entry.path().filename(), &includes);
  }
  if (fs::exists(kSource / "sim")) Collect(kSource / "sim", "sim", &includes);
  return includes;
}

// The folder that a quoted include names, or "" for one beside the file and for <...>.
std::string FolderOf(const std::string& include) {
  const auto slash = include.find('/');
  if (include[0] != '"' || slash == std::string::npos) return "";
  const std::string folder = include.substr(1, slash - 1);
  return kLayers.contains(folder) ? folder : "";
}

bool IsAllowed(const Include& include) {
  const std::string folder = FolderOf(include.text);
  if (folder.empty() || kLayers.at(include.folder).contains(folder)) return true;
  const auto single = kSingleHeaders.find(include.folder);
  return single != kSingleHeaders.end() &&
         single->second.contains(include.text.substr(1, include.text.size() - 2));
}

TEST(Layers, EveryFolderHasARule) {
  for (const auto& entry : fs::directory_iterator(kSource / "src")) {
    if (entry.is_directory()) {
      EXPECT_TRUE(kLayers.contains(entry.path().filename())) << entry.path();
    }
  }
}

TEST(Layers, NobodyIncludesWhatIsAbove) {
  const auto includes = AllIncludes();
  ASSERT_GT(includes.size(), 100u);
  for (const Include& include : includes) {
    // Tests and fakes may look at more than what they test.
    if (IsTest(include.file)) continue;
    EXPECT_TRUE(IsAllowed(include)) << include.file << " includes " << include.text;
  }
}

TEST(Layers, OsAndCriuNeverAppearInThePureFolders) {
  for (const Include& include : AllIncludes()) {
    if (!kPure.contains(include.folder)) continue;
    const std::string folder = FolderOf(include.text);
    EXPECT_TRUE(folder != "os" && folder != "criu") << include.file << " includes " << include.text;
  }
}

TEST(Layers, PureFoldersHaveNoClockThreadOrSocket) {
  for (const Include& include : AllIncludes()) {
    if (!kPure.contains(include.folder) || IsTest(include.file)) continue;
    // The image folder reads and writes files; everything else about the world is foreign to it.
    if (include.folder == "image" &&
        (include.text == "<unistd.h>" || include.text == "<fcntl.h>")) {
      continue;
    }
    // Its lanes run in threads, made elsewhere, which share what they read and fill.
    if (include.folder == "image" && (include.text == "<mutex>" || include.text == "<atomic>")) {
      continue;
    }
    if (include.folder == "sim" && kSpreadsRuns.contains(include.file.filename())) continue;
    EXPECT_FALSE(std::regex_match(include.text, kImpure))
        << include.file << " includes " << include.text;
  }
}

TEST(Layers, TheRuleCatchesWhatItShould) {
  EXPECT_FALSE(IsAllowed({"x.cc", "core", "\"os/link.h\""}));
  EXPECT_FALSE(IsAllowed({"x.cc", "wire", "\"pmi/server.h\""}));
  EXPECT_FALSE(IsAllowed({"x.cc", "rank", "\"base/log.h\""}));
  EXPECT_TRUE(IsAllowed({"x.cc", "rank", "\"wire/rank_link.h\""}));
  EXPECT_TRUE(IsAllowed({"x.cc", "core", "<vector>"}));
  EXPECT_TRUE(std::regex_match(std::string("<thread>"), kImpure));
  EXPECT_TRUE(std::regex_match(std::string("<asio/ssl.hpp>"), kImpure));
  EXPECT_FALSE(std::regex_match(std::string("<string>"), kImpure));
}

}  // namespace
