#include "core/transcript.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace xmpi::core {
namespace {

const std::string kNothing;

std::vector<std::string> SplitQuoted(const std::string& line) {
  std::vector<std::string> parts;
  std::string part;
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ' ' && !quoted) {
      if (!part.empty()) parts.push_back(part);
      part.clear();
    } else {
      part += c;
    }
  }
  if (!part.empty()) parts.push_back(part);
  return parts;
}

}  // namespace

const std::string& Command::Word(std::size_t index) const {
  return index < words.size() ? words[index] : kNothing;
}

std::string Command::Value(const std::string& key, const std::string& otherwise) const {
  const auto found = values.find(key);
  return found == values.end() ? otherwise : found->second;
}

Command ParseCommand(const std::string& line) {
  Command command;
  for (const std::string& part : SplitQuoted(line)) {
    const auto equals = part.find('=');
    if (equals == std::string::npos)
      command.words.push_back(part);
    else
      command.values[part.substr(0, equals)] = part.substr(equals + 1);
  }
  return command;
}

void RunTranscript(const std::string& path, const std::function<std::string(const Command&)>& run) {
  std::ifstream file(path);
  ASSERT_TRUE(file) << "cannot read " << path;
  std::ostringstream rewritten;
  std::string line, answer, expected, commands;
  bool in_answer = false;
  int number = 0;
  const auto close_block = [&] {
    if (!in_answer) return;
    EXPECT_EQ(answer, expected) << path << ":" << number << ": after\n" << commands;
    rewritten << "----\n" << answer;
    answer.clear();
    expected.clear();
    commands.clear();
    in_answer = false;
  };
  while (std::getline(file, line)) {
    ++number;
    if (line == "----") {
      in_answer = true;
    } else if (line.empty()) {
      close_block();
      rewritten << "\n";
    } else if (in_answer) {
      expected += line + "\n";
    } else {
      rewritten << line << "\n";
      if (line.starts_with('#')) continue;
      commands += line + "\n";
      answer += run(ParseCommand(line));
    }
  }
  close_block();
  if (std::getenv("XMPI_REWRITE") != nullptr) std::ofstream(path) << rewritten.str();
}

std::vector<std::string> TranscriptsIn(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(XMPI_TESTDATA "/" + folder))
    paths.push_back(entry.path());
  std::ranges::sort(paths);
  return paths;
}

std::string TranscriptName(const testing::TestParamInfo<std::string>& info) {
  std::string name = std::filesystem::path(info.param).stem();
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

std::vector<std::uint32_t> ParseNumbers(const std::string& text, char separator) {
  std::vector<std::uint32_t> numbers;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);)
    numbers.push_back(static_cast<std::uint32_t>(std::stoul(part)));
  return numbers;
}

std::vector<std::uint32_t> ParseRange(const std::string& text) {
  const auto dash = text.find('-');
  if (dash == std::string::npos) return ParseNumbers(text, ',');
  std::vector<std::uint32_t> numbers;
  for (auto n = std::stoul(text.substr(0, dash)); n <= std::stoul(text.substr(dash + 1)); ++n)
    numbers.push_back(static_cast<std::uint32_t>(n));
  return numbers;
}

}  // namespace xmpi::core
