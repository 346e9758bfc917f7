// The job's secret and the keys made from it. One secret of 256 bits per job; HKDF gives every
// connection's pre-shared key from it, bound to {job, slot, role, migration, attempt}, so that a
// key says what it is for (RFC 9257). The memory of secrets is wiped when they die. A secret
// travels only on the standard input of the program that needs it, never in argv, the environment
// or a log.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/ids.h"

namespace xmpi::os {

// 32 secret bytes; moving leaves the source wiped.
class Secret {
 public:
  static constexpr std::size_t kBytes = 32;
  using Bytes = std::array<std::uint8_t, kBytes>;

  static Result<Secret> Random();
  // From 64 hex digits, as ToHex writes them.
  static Result<Secret> FromHex(std::string_view hex);

  explicit Secret(const Bytes& bytes) : bytes_(bytes) {}
  Secret(Secret&& other) noexcept;
  Secret& operator=(Secret&& other) noexcept;
  ~Secret();

  const Bytes& bytes() const { return bytes_; }
  // The caller wipes the text (Wipe) once it is sent.
  std::string ToHex() const;
  Secret Copy() const { return Secret(bytes_); }

 private:
  Bytes bytes_{};
};

void Wipe(std::string* text);

enum class Role { kControl, kImage };
std::string_view ToString(Role role);

// What a connection is for. `job` is a name without '/'.
struct KeyContext {
  std::string job;
  ProxyId proxy;
  Role role = Role::kControl;
  bool operator==(const KeyContext&) const = default;
};

// `job/slot/role/migration.attempt`: the PSK identity of RFC 9257's advice, sent in the clear.
std::string Identity(const KeyContext& context);
Result<KeyContext> ParseIdentity(std::string_view identity);

Result<Secret> DeriveKey(const Secret& secret, const KeyContext& context);

}  // namespace xmpi::os
