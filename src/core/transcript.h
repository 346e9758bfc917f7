// Transcripts: scenario tests that read as a conversation. A file holds blocks of commands, a line
// `----`, and what the machine answered, up to an empty line. Lines that begin with # are prose.
// XMPI_REWRITE=1 writes the answers anew, for a person to review. Test code only.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace xmpi::core {

// One command line: its first words, and its key=value pairs (values may be "quoted").
struct Command {
  std::vector<std::string> words;
  std::map<std::string, std::string> values;

  const std::string& Word(std::size_t index) const;  // "" if there is none
  std::string Value(const std::string& key, const std::string& otherwise = "") const;
};

Command ParseCommand(const std::string& line);

// Runs every block of the file through `run`, which returns the answer to one command as lines.
void RunTranscript(const std::string& path, const std::function<std::string(const Command&)>& run);

// The files of one folder under testdata, and their names as gtest wants them.
std::vector<std::string> TranscriptsIn(const std::string& folder);
std::string TranscriptName(const testing::TestParamInfo<std::string>& info);

// "0.1.1" or the like as three numbers; "0-3" or "2" or "0,2" as a list.
std::vector<std::uint32_t> ParseNumbers(const std::string& text, char separator);
std::vector<std::uint32_t> ParseRange(const std::string& text);

}  // namespace xmpi::core
