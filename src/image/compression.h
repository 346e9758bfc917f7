// Compression of pages on their way: the two codecs, when which of them pays, and a Compressor that
// finds out as it goes. A link that takes bytes faster than they can be made fewer gets them as
// they are. The decision is a function of measured rates alone.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace xmpi::image {

enum class Encoding : std::uint8_t { kNone = 0, kLz4 = 1, kZstd = 2 };

// What became of a sample.
struct Trial {
  double ratio = 1;             // compressed by raw
  double bytes_per_second = 0;  // raw ones, compressed in a second; 0: not tried
};

// What brings raw bytes through soonest when one thread compresses and then writes at the link's
// rate; kNone unless the gain is worth speaking of.
Encoding Choose(double link_bytes_per_second, const Trial& lz4, const Trial& zstd);

// False unless `in` is exactly the whole of `out` under this encoding.
bool Decompress(Encoding encoding, std::span<const std::byte> in, std::span<std::byte> out);

class Compressor {
 public:
  // With `fixed` there is no choice.
  explicit Compressor(std::optional<Encoding> fixed = {}) : fixed_(fixed) {}

  struct Encoded {
    Encoding encoding = Encoding::kNone;
    std::size_t bytes = 0;
  };
  // Into `out`, of at most its size, unless it is left as it is.
  Encoded Encode(std::span<const std::byte> raw, std::span<std::byte> out);
  // How long the connection took for what was written.
  void OnWritten(std::size_t bytes, std::chrono::nanoseconds took);

  double link_bytes_per_second() const;

 private:
  Encoding Pick(std::span<const std::byte> raw);
  Trial Try(Encoding encoding, std::span<const std::byte> sample);

  std::optional<Encoding> fixed_;
  Encoding choice_ = Encoding::kNone;
  double written_bytes_ = 0;  // both fade, so that their quotient is of late
  double written_seconds_ = 0;
  double rate_at_trial_ = 0;
  int since_trial_ = 0;
  std::vector<std::byte> scratch_;
};

}  // namespace xmpi::image
