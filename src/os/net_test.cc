#include "os/net.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <format>

namespace xmpi::os {
namespace {

TEST(Net, LoopbackIsAmongTheInterfaces) {
  const auto all = InterfaceAddresses().value();
  EXPECT_THAT(all, testing::Contains(testing::Field(&InterfaceAddress::address, "127.0.0.1")));
}

TEST(Net, AnInterfaceIsFoundByNameOrAddress) {
  EXPECT_THAT(ReachableAddresses("lo").value(), testing::Contains("127.0.0.1"));
  EXPECT_THAT(ReachableAddresses("127.0.0.1").value(), testing::ElementsAre("127.0.0.1"));
  const auto unknown = ReachableAddresses("nosuch0");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kUsage);
  EXPECT_THAT(unknown.error().message, testing::HasSubstr("lo (127.0.0.1)"));
}

TEST(Net, AnAddressIsTurnedIntoItsInterfaceForOtherHosts) {
  EXPECT_EQ(InterfaceName("127.0.0.1"), "lo");
  EXPECT_EQ(InterfaceName("lo"), "lo");
  EXPECT_EQ(InterfaceName(""), "");
  EXPECT_EQ(InterfaceName("192.0.2.1"), "192.0.2.1");
}

TEST(Net, WithoutAWishLoopbackComesOnlyWhenAlone) {
  const auto addresses = ReachableAddresses("").value();
  ASSERT_FALSE(addresses.empty());
  if (addresses.front() != "127.0.0.1") {
    EXPECT_THAT(addresses, testing::Not(testing::Contains("127.0.0.1")));
  }
}

TEST(Net, ThisHost) {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  EXPECT_TRUE(IsThisHost("localhost"));
  EXPECT_TRUE(IsThisHost(name));
  EXPECT_TRUE(IsThisHost("127.0.0.1"));
  EXPECT_FALSE(IsThisHost("192.0.2.1"));
  EXPECT_FALSE(IsThisHost(""));
}

TEST(Net, PortRanges) {
  EXPECT_EQ(ParsePortRange("").value().low, 0);
  const auto range = ParsePortRange("5000:5010").value();
  EXPECT_EQ(range.low, 5000);
  EXPECT_EQ(range.high, 5010);
  for (const char* bad :
       {"5000", "5010:5000", "0:10", "1:70000", "a:b", "1:2:3", ":", "1:", " 1:2"}) {
    EXPECT_FALSE(ParsePortRange(bad)) << bad;
  }
}

TEST(Net, AFullRangeIsNamed) {
  const auto first = Listen("", {}).value();
  ASSERT_NE(first.port, 0);
  const auto second = Listen("", {first.port, first.port});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message,
            std::format("no free port in {0}:{0}; give a wider -port-range", first.port));
}

TEST(Net, TakesTheNextFreePortOfTheRange) {
  const auto first = Listen("127.0.0.1", {}).value();
  const std::uint16_t low = first.port > 65000 ? first.port - 200 : first.port;
  const auto second = Listen("127.0.0.1", {low, static_cast<std::uint16_t>(low + 200)}).value();
  EXPECT_NE(second.port, first.port);
  EXPECT_GE(second.port, low);
}

TEST(Net, AnAddressOfAnotherHostIsAnError) {
  EXPECT_FALSE(Listen("192.0.2.1", {}));
  EXPECT_EQ(Listen("nonsense", {}).error().message, "'nonsense' is no IP address");
}

}  // namespace
}  // namespace xmpi::os
