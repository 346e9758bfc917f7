#include "os/key.h"

#include <gtest/gtest.h>

#include <set>

namespace xmpi::os {
namespace {

TEST(Key, HexRoundTrip) {
  const Secret secret = Secret::Random().value();
  const std::string hex = secret.ToHex();
  EXPECT_EQ(hex.size(), 64u);
  EXPECT_EQ(Secret::FromHex(hex).value().bytes(), secret.bytes());
  EXPECT_NE(Secret::Random().value().bytes(), secret.bytes());
}

TEST(Key, BadHexIsRefused) {
  EXPECT_FALSE(Secret::FromHex(""));
  EXPECT_FALSE(Secret::FromHex(std::string(63, 'a')));
  EXPECT_FALSE(Secret::FromHex(std::string(63, 'a') + "g"));
  EXPECT_FALSE(Secret::FromHex(std::string(64, 'A')));
}

TEST(Key, MovingWipesTheSource) {
  Secret first = Secret::FromHex(std::string(64, 'a')).value();
  const Secret second = std::move(first);
  EXPECT_EQ(first.bytes(), Secret::Bytes{});  // NOLINT(bugprone-use-after-move): the point
  EXPECT_EQ(second.bytes()[0], 0xaa);
}

TEST(Key, WipeEmptiesText) {
  std::string text = "secret";
  Wipe(&text);
  EXPECT_EQ(text, "");
}

TEST(Key, IdentityRoundTrip) {
  const KeyContext context{"heat-7f", {3, 2, 1}, Role::kImage};
  EXPECT_EQ(Identity(context), "heat-7f/3/image/2.1");
  EXPECT_EQ(ParseIdentity("heat-7f/3/image/2.1").value(), context);
}

TEST(Key, OnlyTheOneSpellingIsAnIdentity) {
  for (const char* bad :
       {"", "job", "job/1/control", "job/1/control/0", "job/1/control/0.", "job/1/other/0.0",
        "job/01/control/0.0", "job/1/control/0.0/", "job/1/control/0.0 ", "job/-1/control/0.0",
        "job/4294967296/control/0.0", "job/1/control/0.0.0", "job//control/0.0"}) {
    EXPECT_FALSE(ParseIdentity(bad)) << bad;
  }
  EXPECT_FALSE(ParseIdentity(std::string(65, 'j') + "/1/control/0.0"));
  EXPECT_FALSE(ParseIdentity(std::string_view("j\0b/1/control/0.0\0", 18)));
}

TEST(Key, IsAsComputedByHand) {
  // HKDF-SHA256 (RFC 5869) of 32 bytes 0x0b, salt "xmpi psk 1", info "job/0/control/0.0".
  const Secret secret =
      Secret::FromHex(
          std::string("0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b"))
          .value();
  EXPECT_EQ(DeriveKey(secret, {"job", {0, 0, 0}, Role::kControl}).value().ToHex(),
            "21c8dd3e07d8e8e936630b398edabf9a56cda12521bd6ea8a18ea821ba33b2f2");
}

TEST(Key, EveryContextHasAKeyOfItsOwn) {
  const Secret secret = Secret::Random().value();
  std::set<std::string> keys;
  for (const char* job : {"a", "b"}) {
    for (const Role role : {Role::kControl, Role::kImage}) {
      for (const ProxyId proxy :
           {ProxyId{0, 0, 0}, ProxyId{1, 0, 0}, ProxyId{0, 1, 0}, ProxyId{0, 0, 1}}) {
        keys.insert(DeriveKey(secret, {job, proxy, role}).value().ToHex());
      }
    }
  }
  EXPECT_EQ(keys.size(), 16u);
}

}  // namespace
}  // namespace xmpi::os
