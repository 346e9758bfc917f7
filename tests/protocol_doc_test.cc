// docs/protocol.md against the code: the message table against Envelope's messages, the frame
// table against the frame kinds and their limits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "wire/control.pb.h"
#include "wire/frame.h"

namespace xmpi {
namespace {

using Row = std::vector<std::string>;

std::string Trim(std::string_view text) {
  const auto first = text.find_first_not_of(" `");
  const auto last = text.find_last_not_of(" `");
  return first == std::string_view::npos ? "" : std::string(text.substr(first, last - first + 1));
}

// The rows of the table whose header line is `header`, cells trimmed.
std::vector<Row> Table(const std::string& header) {
  std::ifstream file(XMPI_SOURCE_DIR "/docs/protocol.md");
  std::vector<Row> rows;
  std::string line;
  while (std::getline(file, line) && line != header) continue;
  std::getline(file, line);  // the line of dashes
  while (std::getline(file, line) && line.starts_with("|")) {
    Row row;
    for (std::size_t at = 1; at < line.size();) {
      const auto bar = std::min(line.find('|', at), line.size());
      row.push_back(Trim(std::string_view(line).substr(at, bar - at)));
      at = bar + 1;
    }
    rows.push_back(row);
  }
  return rows;
}

TEST(ProtocolDoc, TheMessageTableIsTheMessageSet) {
  std::multiset<std::string> code;
  const auto* body = wire::Envelope::descriptor()->FindOneofByName("body");
  ASSERT_NE(body, nullptr);
  for (int i = 0; i < body->field_count(); ++i) {
    code.insert(std::string(body->field(i)->message_type()->name()));
  }
  std::multiset<std::string> documented;
  for (const Row& row : Table("| message | direction | phase | when |"))
    documented.insert(row.at(0));
  EXPECT_EQ(documented, code);
}

TEST(ProtocolDoc, DirectionsAndPhasesAreOfTheVocabulary) {
  const std::set<std::string> directions = {"to proxy", "to launcher"};
  const std::set<std::string> phases = {"any",     "start",    "run",      "end",
                                        "prepare", "quiesce",  "dump",     "transfer",
                                        "restore", "handover", "reconnect"};
  for (const Row& row : Table("| message | direction | phase | when |")) {
    ASSERT_EQ(row.size(), 4u) << row.at(0);
    EXPECT_TRUE(directions.contains(row[1])) << row[0] << ": " << row[1];
    for (std::size_t at = 0; at < row[2].size();) {
      const auto comma = std::min(row[2].find(", ", at), row[2].size());
      EXPECT_TRUE(phases.contains(row[2].substr(at, comma - at))) << row[0] << ": " << row[2];
      at = comma + 2;
    }
    EXPECT_FALSE(row[3].empty()) << row[0];
  }
}

TEST(ProtocolDoc, TheFrameTableHasEveryKindAndItsLimit) {
  std::set<std::string> documented;
  for (const Row& row : Table("| kind | name | number | payload | at most, bytes |")) {
    documented.insert(row.at(0) + " " + row.at(4));
  }
  std::set<std::string> code;
  for (int kind = 1; kind <= static_cast<int>(wire::FrameKind::kBye); ++kind) {
    code.insert(std::to_string(kind) + " " +
                std::to_string(wire::PayloadLimit(static_cast<wire::FrameKind>(kind))));
  }
  EXPECT_EQ(documented, code);
}

}  // namespace
}  // namespace xmpi
