// Source: the sender's half of the image stream. It reads the files of one rank's image and yields
// chunks of at most 1 MiB, the manifest last, since the checksums in it are made while reading. It
// holds one buffer, never a second copy of the image, and leaves the image as it was, so that it
// can be sent again to another target. SendImage and ReceiveImages are the two loops around it and
// around the Assembler, for a blocking connection in a worker thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "image/assembler.h"
#include "image/chunk.h"
#include "image/hash.h"
#include "image/manifest.h"
#include "image/message.h"
#include "image/ranges.h"

namespace xmpi::image {

// The names of the files in the directory that belong to the image, sorted, with their lengths;
// CRIU's logs and statistics do not.
Result<std::vector<ManifestFile>> ListImageFiles(const Fd& directory);

class Source {
 public:
  // `image` must outlive the source and its manifest's files are filled in on the way.
  Source(RankImage* image, RankHoldings held);

  // The next chunk, valid until the next call; nullopt when the image is sent whole.
  Result<std::optional<Chunk>> Next();
  std::uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  Result<std::optional<Chunk>> NextOfFile();
  Result<std::optional<Chunk>> NextOfManifest();
  Result<> OpenFile();
  Chunk Make(ChunkKind kind, std::uint64_t offset, std::uint64_t total,
             std::span<const std::byte> payload);

  RankImage* image_;
  RankHoldings held_;
  std::size_t file_ = 0;  // index into the manifest's files; number = index + 1
  Fd fd_;
  bool hash_known_ = false;
  std::uint64_t offset_ = 0;
  Hasher hasher_;
  std::string manifest_;
  std::string payload_;
  bool manifest_declared_ = false;
  std::uint64_t manifest_offset_ = 0;
  std::vector<std::byte> buffer_;
  std::uint64_t bytes_sent_ = 0;
};

// The source's first word on every connection.
Result<> SendBegin(const WriteAll& write, const Begin& begin);
// On the control connection the answer to that: what the target holds already (nothing, on a first
// connection). kRefused when it does not want this stream.
Result<Holdings> ReceiveHoldings(const ReadAll& read);
// One rank's image; skips what the target holds.
Result<> SendImage(const WriteAll& write, RankImage* image, const RankHoldings& held,
                   std::uint64_t* bytes_sent);
// `sent_bytes`: on all connections together since the dump began, for the target to report.
Result<> SendEnd(const WriteAll& write, std::uint64_t sent_bytes = 0);
// While there is nothing to send yet: a target takes silence for the end of the source.
Result<> SendWait(const WriteAll& write);
// The source may ask this before it sends: what the target sees under the names of held files, in
// their order.
Result<std::vector<Seen>> AskSights(const ReadAll& read, const WriteAll& write,
                                    const std::vector<HeldFile>& files);
// The source reads this last: an error unless the target holds and has verified every image.
Result<> ReceiveVerdict(const ReadAll& read);

// The target reads this first on every connection, and refuses another stream's; what follows is
// for ReceiveImages, or for ReceivePages of image/page_store.h when it is a lane.
Result<Begin> ReceiveBegin(const ReadAll& read, const WriteAll& write, const StreamId& expected);

// Tells the source why `error` ends the connection, unless it is one that is worth another.
Result<> Refuse(const WriteAll& write, const Error& error);

// How the target looks at its own files; called on the thread of ReceiveImages.
using LookAt = std::function<std::vector<Seen>(const std::vector<HeldFile>& files)>;

// A question that has no answer here is refused.
struct Answers {
  AnswerFacts facts{};
  LookAt look{};
};
// The target's side of the control connection after kBegin: says what it holds, takes chunks until
// kEnd, answers kHeld, or kRefused with the reason when something does not check.
Result<> ReceiveImages(const ReadAll& read, const WriteAll& write, Assembler* assembler,
                       const Answers& answers = {});

}  // namespace xmpi::image
