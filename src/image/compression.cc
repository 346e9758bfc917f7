#include "image/compression.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <memory>

namespace xmpi::image {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kZstdLevel = 1;
// What is not at least this much sooner is not worth the other side's work.
constexpr double kWorthwhile = 0.9;
// On links faster than these the codecs cannot win on one core, whatever the data.
constexpr double kLz4LinkLimit = 2e9;
constexpr double kZstdLinkLimit = 5e8;
// The choice is made anew after so many chunks, or when the link has become so much faster or
// slower.
constexpr int kChunksPerTrial = 32;
constexpr double kOtherLink = 2;
constexpr std::size_t kSampleBytes = 64u << 10;
// Half of a measurement is forgotten in some seven chunks.
constexpr double kFading = 0.9;

// 0: it does not fit into `out`, or there is no such encoding.
std::size_t Compress(Encoding encoding, std::span<const std::byte> raw, std::span<std::byte> out) {
  if (encoding == Encoding::kLz4) {
    return static_cast<std::size_t>(std::max(
        0, LZ4_compress_default(reinterpret_cast<const char*>(raw.data()),
                                reinterpret_cast<char*>(out.data()), static_cast<int>(raw.size()),
                                static_cast<int>(out.size()))));
  }
  if (encoding != Encoding::kZstd) return 0;
  struct Free {
    void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  };
  thread_local const std::unique_ptr<ZSTD_CCtx, Free> context(ZSTD_createCCtx());
  const std::size_t size =
      ZSTD_compressCCtx(context.get(), out.data(), out.size(), raw.data(), raw.size(), kZstdLevel);
  return ZSTD_isError(size) != 0 ? 0 : size;
}

double SecondsPerByte(double link_bytes_per_second, const Trial& trial) {
  return trial.ratio / link_bytes_per_second + 1 / trial.bytes_per_second;
}

}  // namespace

Encoding Choose(double link_bytes_per_second, const Trial& lz4, const Trial& zstd) {
  if (link_bytes_per_second <= 0) return Encoding::kNone;
  Encoding best = Encoding::kNone;
  double least = kWorthwhile / link_bytes_per_second;
  const auto consider = [&](Encoding encoding, const Trial& trial) {
    if (trial.bytes_per_second <= 0) return;
    const double seconds = SecondsPerByte(link_bytes_per_second, trial);
    if (seconds >= least) return;
    least = seconds;
    best = encoding;
  };
  consider(Encoding::kLz4, lz4);
  consider(Encoding::kZstd, zstd);
  return best;
}

bool Decompress(Encoding encoding, std::span<const std::byte> in, std::span<std::byte> out) {
  if (encoding == Encoding::kLz4) {
    return LZ4_decompress_safe(reinterpret_cast<const char*>(in.data()),
                               reinterpret_cast<char*>(out.data()), static_cast<int>(in.size()),
                               static_cast<int>(out.size())) == static_cast<int>(out.size());
  }
  if (encoding != Encoding::kZstd) return false;
  const std::size_t size = ZSTD_decompress(out.data(), out.size(), in.data(), in.size());
  return ZSTD_isError(size) == 0 && size == out.size();
}

Compressor::Encoded Compressor::Encode(std::span<const std::byte> raw, std::span<std::byte> out) {
  const Encoding encoding = Pick(raw);
  const std::size_t size =
      encoding == Encoding::kNone || raw.empty()
          ? 0
          : Compress(encoding, raw, out.first(std::min(out.size(), raw.size())));
  if (size == 0) return {Encoding::kNone, raw.size()};
  return {encoding, size};
}

void Compressor::OnWritten(std::size_t bytes, std::chrono::nanoseconds took) {
  written_bytes_ = written_bytes_ * kFading + static_cast<double>(bytes);
  written_seconds_ = written_seconds_ * kFading + std::chrono::duration<double>(took).count();
}

double Compressor::link_bytes_per_second() const {
  return written_bytes_ / std::max(written_seconds_, 1e-9);
}

Encoding Compressor::Pick(std::span<const std::byte> raw) {
  if (fixed_) return *fixed_;
  const double rate = link_bytes_per_second();
  const bool other_link = rate > rate_at_trial_ * kOtherLink || rate < rate_at_trial_ / kOtherLink;
  if ((++since_trial_ < kChunksPerTrial && !other_link) || raw.size() < kSampleBytes)
    return choice_;
  since_trial_ = 0;
  rate_at_trial_ = rate;
  const auto sample = raw.subspan((raw.size() - kSampleBytes) / 2, kSampleBytes);
  choice_ = Choose(rate, rate < kLz4LinkLimit ? Try(Encoding::kLz4, sample) : Trial{},
                   rate < kZstdLinkLimit ? Try(Encoding::kZstd, sample) : Trial{});
  return choice_;
}

Trial Compressor::Try(Encoding encoding, std::span<const std::byte> sample) {
  scratch_.resize(2 * kSampleBytes);
  const auto begin = Clock::now();
  const std::size_t size = Compress(encoding, sample, scratch_);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const auto raw = static_cast<double>(sample.size());
  return {static_cast<double>(size) / raw, raw / std::max(seconds, 1e-9)};
}

}  // namespace xmpi::image
