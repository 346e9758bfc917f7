#include "os/key.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <charconv>
#include <format>
#include <memory>

#include "base/limits.h"

namespace xmpi::os {
namespace {

// Changes whenever the meaning of the keys does, so that old and new never agree by accident.
constexpr std::string_view kSalt = "xmpi psk 1";

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// A decimal number without sign or leading zeros, so that every identity has one spelling.
bool ParseNumber(std::string_view text, std::uint32_t* value) {
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

std::string_view TakeUntil(char separator, std::string_view* rest) {
  const auto at = rest->find(separator);
  const std::string_view part = rest->substr(0, at);
  rest->remove_prefix(at == std::string_view::npos ? rest->size() : at + 1);
  return part;
}

OSSL_PARAM OctetParam(const char* name, const void* data, std::size_t size) {
  return OSSL_PARAM_construct_octet_string(name, const_cast<void*>(data), size);
}

}  // namespace

Result<Secret> Secret::Random() {
  Secret secret{Bytes{}};
  if (RAND_priv_bytes(secret.bytes_.data(), kBytes) != 1) {
    return Fail("no random bytes for the job's secret");
  }
  return secret;
}

Result<Secret> Secret::FromHex(std::string_view hex) {
  if (hex.size() != 2 * kBytes) {
    return Fail(ErrorCode::kProtocol,
                std::format("a secret of {} hex digits, not {}", hex.size(), 2 * kBytes));
  }
  Secret secret{Bytes{}};
  for (std::size_t i = 0; i < kBytes; ++i) {
    const int high = HexDigit(hex[2 * i]);
    const int low = HexDigit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return Fail(ErrorCode::kProtocol, "a secret that is no hex number");
    secret.bytes_[i] = static_cast<std::uint8_t>(high << 4 | low);
  }
  return secret;
}

Secret::Secret(Secret&& other) noexcept : bytes_(other.bytes_) {
  OPENSSL_cleanse(other.bytes_.data(), kBytes);
}

Secret& Secret::operator=(Secret&& other) noexcept {
  if (this != &other) {
    bytes_ = other.bytes_;
    OPENSSL_cleanse(other.bytes_.data(), kBytes);
  }
  return *this;
}

Secret::~Secret() { OPENSSL_cleanse(bytes_.data(), kBytes); }

std::string Secret::ToHex() const {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex(2 * kBytes, '0');
  for (std::size_t i = 0; i < kBytes; ++i) {
    hex[2 * i] = kDigits[bytes_[i] >> 4];
    hex[2 * i + 1] = kDigits[bytes_[i] & 15];
  }
  return hex;
}

void Wipe(std::string* text) {
  OPENSSL_cleanse(text->data(), text->size());
  text->clear();
}

std::string_view ToString(Role role) { return role == Role::kControl ? "control" : "image"; }

std::string Identity(const KeyContext& context) {
  return std::format("{}/{}/{}/{}.{}", context.job, context.proxy.slot, ToString(context.role),
                     context.proxy.migration, context.proxy.attempt);
}

Result<KeyContext> ParseIdentity(std::string_view identity) {
  KeyContext context;
  std::string_view rest = identity;
  context.job = TakeUntil('/', &rest);
  const bool slot = ParseNumber(TakeUntil('/', &rest), &context.proxy.slot);
  const std::string_view role = TakeUntil('/', &rest);
  const bool migration = ParseNumber(TakeUntil('.', &rest), &context.proxy.migration);
  const bool attempt = ParseNumber(rest, &context.proxy.attempt);
  context.role = role == "image" ? Role::kImage : Role::kControl;
  const bool known = context.job.size() <= limits::kJobNameBytes && role == ToString(context.role);
  if (identity.size() > limits::kIdentityBytes || !slot || !migration || !attempt || !known ||
      Identity(context) != identity) {
    return Fail(ErrorCode::kProtocol,
                "not an identity of the form job/slot/role/migration.attempt");
  }
  return context;
}

Result<Secret> DeriveKey(const Secret& secret, const KeyContext& context) {
  const std::unique_ptr<EVP_KDF, decltype(&EVP_KDF_free)> kdf(
      EVP_KDF_fetch(nullptr, "HKDF", nullptr), EVP_KDF_free);
  const std::unique_ptr<EVP_KDF_CTX, decltype(&EVP_KDF_CTX_free)> ctx(
      kdf ? EVP_KDF_CTX_new(kdf.get()) : nullptr, EVP_KDF_CTX_free);
  if (!ctx) return Fail("OpenSSL has no HKDF");
  const std::string info = Identity(context);
  char digest[] = "SHA256";
  const OSSL_PARAM params[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OctetParam(OSSL_KDF_PARAM_KEY, secret.bytes().data(), Secret::kBytes),
      OctetParam(OSSL_KDF_PARAM_SALT, kSalt.data(), kSalt.size()),
      OctetParam(OSSL_KDF_PARAM_INFO, info.data(), info.size()), OSSL_PARAM_construct_end()};
  Secret::Bytes key;
  const bool derived = EVP_KDF_derive(ctx.get(), key.data(), key.size(), params) == 1;
  Secret result(key);
  OPENSSL_cleanse(key.data(), key.size());
  if (!derived) return Fail("OpenSSL's HKDF failed");
  return result;
}

}  // namespace xmpi::os
