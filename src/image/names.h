// What every part of an image is known by: a 128-bit hash of its bytes, and a plain file name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace xmpi::image {

struct Hash128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const Hash128&) const = default;
};

inline constexpr std::size_t kMaxFileNameBytes = 255;

// A name that is one plain component: no slash, no NUL, not "." or "..", not empty.
bool IsPlainFileName(std::string_view name);

}  // namespace xmpi::image
