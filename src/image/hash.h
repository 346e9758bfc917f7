// Hasher: XXH3-128 over bytes that come piece by piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "image/manifest.h"

struct XXH3_state_s;

namespace xmpi::image {

class Hasher {
 public:
  Hasher();
  void Update(std::span<const std::byte> bytes);
  Hash128 Digest() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

Hash128 HashOf(std::span<const std::byte> bytes);

}  // namespace xmpi::image
