// docs/image-stream.md and the code name the same kinds of chunks.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <string>

#include "image/chunk.h"

namespace xmpi::image {
namespace {

TEST(ImageDoc, ListsEveryKindOfChunk) {
  std::map<std::string, std::string> documented, known;
  std::ifstream doc(XMPI_IMAGE_DOC);
  const std::regex row("\\| ([0-9]+) \\| (\\w+) \\| (source|target) \\|.*");
  for (std::string line; std::getline(doc, line);) {
    std::smatch match;
    if (std::regex_match(line, match, row)) documented[match[1]] = match[2];
  }
  for (std::uint16_t kind = 0; kind < 100; ++kind) {
    const std::string name = ToString(static_cast<ChunkKind>(kind));
    if (name != "unknown") known[std::to_string(kind)] = name;
  }
  EXPECT_FALSE(known.empty());
  EXPECT_EQ(documented, known);
}

}  // namespace
}  // namespace xmpi::image
