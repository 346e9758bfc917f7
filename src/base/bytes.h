// ByteWriter and ByteReader: little-endian numbers and length-prefixed strings, for the fixed
// binary formats that are ours alone (image chunks, manifests, the slot init's requests). The
// reader never reads past its input: the first short or oversize field makes it fail for good, and
// ok() says so at the end, so callers check once.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace xmpi {

class ByteWriter {
 public:
  template <std::unsigned_integral T>
  void Put(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i)
      out_ += static_cast<char>((value >> (8 * i)) & 0xff);
  }
  void PutString(std::string_view text) {
    Put<std::uint32_t>(static_cast<std::uint32_t>(text.size()));
    out_ += text;
  }
  const std::string& bytes() const { return out_; }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <std::unsigned_integral T>
  T Get() {
    if (!Need(sizeof(T))) return 0;
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      value |= static_cast<T>(static_cast<T>(static_cast<unsigned char>(rest_[i])) << (8 * i));
    }
    rest_.remove_prefix(sizeof(T));
    return value;
  }

  // At most `limit` bytes, whatever the length field says.
  std::string_view GetString(std::size_t limit) {
    const std::size_t size = Get<std::uint32_t>();
    if (size > limit || !Need(size)) {
      ok_ = false;
      return {};
    }
    const std::string_view text = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return text;
  }

  // A count of things that take at least `least_bytes` each in what is left; 0 when it cannot be.
  std::uint32_t GetCount(std::size_t limit, std::size_t least_bytes) {
    const std::uint32_t count = Get<std::uint32_t>();
    if (count > limit || static_cast<std::uint64_t>(count) * least_bytes > rest_.size()) {
      ok_ = false;
      return 0;
    }
    return count;
  }

  bool ok() const { return ok_; }
  bool AtEnd() const { return ok_ && rest_.empty(); }
  std::size_t left() const { return rest_.size(); }

 private:
  bool Need(std::size_t size) {
    if (ok_ && rest_.size() >= size) return true;
    ok_ = false;
    return false;
  }

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace xmpi
