#include "ctl/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <format>
#include <nlohmann/json.hpp>

#include "ctl/doctor_show.h"

namespace xmpi::ctl {
namespace {

using testing::HasSubstr;

std::string Printed(const wire::NodeFacts& facts) {
  std::string text;
  for (const char c : facts.SerializeAsString())
    text += std::format("{:02x}", static_cast<unsigned char>(c));
  return text + "\n";
}

Patient Healthy(const std::string& node) {
  wire::NodeFacts facts;
  facts.set_node(node);
  facts.set_kernel("6.12.1");
  facts.set_criu_version("4.1.1");
  facts.set_namespaces(true);
  return {.node = node, .facts = facts};
}

TEST(Doctor, ReadsWhatAProxyPrints) {
  const auto facts = ParseFacts("n1", Printed(*Healthy("other").facts));
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ(facts->node(), "n1");
  EXPECT_EQ(facts->kernel(), "6.12.1");
  for (const char* text : {"", "zz", "Welcome to n1!\n", "0", "0aff"}) {
    const auto bad = ParseFacts("n1", text);
    ASSERT_FALSE(bad) << text;
    EXPECT_EQ(bad.error().code, ErrorCode::kProtocol);
  }
}

TEST(Doctor, HealthyNodesHaveNoFinding) {
  const std::vector<Patient> patients{Healthy("a"), Healthy("b")};
  const wire::Findings findings = Examine(patients);
  EXPECT_EQ(findings.findings_size(), 0);
  EXPECT_THAT(ShowDoctor(patients, findings), HasSubstr("nothing found"));
  EXPECT_EQ(DoctorJson(patients, findings)["ok"], true);
}

TEST(Doctor, EachThingIsToldOnceForItsNode) {
  std::vector<Patient> patients{Healthy("a"), Healthy("b"), Healthy("old"), {.node = "silent"}};
  patients[2].facts->set_kernel("5.15.0");
  patients[3].facts = Fail(ErrorCode::kTimeout, "no answer");
  const wire::Findings findings = Examine(patients);
  ASSERT_EQ(findings.findings_size(), 2) << findings.DebugString();
  const std::string text = ShowDoctor(patients, findings);
  EXPECT_THAT(text, HasSubstr("REFUSED: silent tells nothing: no answer"));
  EXPECT_THAT(text, HasSubstr("the kernel of old, 5.15.0, is older than that of a, 6.12.1"));
  EXPECT_THAT(text, HasSubstr("remedy: "));
  const auto json = DoctorJson(patients, findings);
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["nodes"][3]["error"], "no answer");
  EXPECT_EQ(json["findings"][1]["node"], "old");
}

TEST(Doctor, AHostNameIsNoOption) {
  const auto code =
      Doctor({.nodes = {"-oProxyCommand=x"}, .proxy_path = {}}, [](const std::string&) {});
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().code, ErrorCode::kUsage);
}

}  // namespace
}  // namespace xmpi::ctl
