#include "proxy/dump.h"

#include <format>
#include <memory>
#include <optional>
#include <utility>

namespace xmpi::proxy {
namespace {

struct Dump {
  std::map<RankId, wire::RankImage> facts;
  std::function<void(image::RankImage)> on_image;
  std::function<void(Result<std::vector<wire::RankImage>>)> done;
  std::vector<wire::RankImage> images{};
  std::optional<Error> failure{};
  std::size_t outstanding = 0;
};

wire::RankImage Describe(wire::RankImage image, const criu::DumpDone& dumped) {
  image.set_rank(dumped.rank);
  std::uint64_t bytes = 0;
  for (const image::ManifestFile& file : dumped.image->manifest.files) bytes += file.length;
  for (const image::TaskMemory& task : dumped.image->manifest.memory)
    for (const image::PageRun& run : task.runs) bytes += run.pages * image::kPageBytes;
  image.set_bytes(bytes);
  return image;
}

void OnDumped(Dump& dump, criu::DumpDone dumped) {
  if (!dumped.image) {
    if (!dump.failure) dump.failure = dumped.image.error();
  } else {
    dump.images.push_back(Describe(dump.facts[dumped.rank], dumped));
    dumped.image->manifest.note = dump.images.back().SerializeAsString();
    if (!dump.failure) dump.on_image(std::move(*dumped.image));
  }
  if (--dump.outstanding > 0) return;
  if (dump.failure) return dump.done(std::unexpected(*dump.failure));
  dump.done(std::move(dump.images));
}

}  // namespace

Result<wire::RankImage> FactsOf(RankId rank, const std::string& note) {
  wire::RankImage image;
  if (!image.ParseFromString(note) || image.rank() != rank)
    return Fail(ErrorCode::kProtocol,
                std::format("the image of rank {} came without its note", rank));
  return image;
}

void DumpRanks(const std::map<RankId, Ranks::Process>& ranks,
               const std::vector<wire::RankImage>& facts, const FilePolicy& files,
               std::chrono::milliseconds timeout, criu::Checkpointer* checkpointer,
               std::function<void(image::RankImage)> on_image,
               std::function<void(Result<std::vector<wire::RankImage>>)> done) {
  if (ranks.empty()) return done(Fail("no rank lives here any more"));
  auto dump = std::make_shared<Dump>(Dump{{}, std::move(on_image), std::move(done)});
  for (const wire::RankImage& each : facts) dump->facts[each.rank()] = each;
  dump->outstanding = ranks.size();
  for (const auto& [rank, process] : ranks) {
    checkpointer->Dump({.rank = rank,
                        .pid = process.pid,
                        .ties = process.ties,
                        .files_at_target = files.at_target,
                        .carry_files = files.carry,
                        .timeout = timeout},
                       [dump](criu::DumpDone dumped) { OnDumped(*dump, std::move(dumped)); });
  }
}

}  // namespace xmpi::proxy
