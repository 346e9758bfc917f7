// xmpictl doctor: looks at nodes before a job runs on them, through the same remote shell that the
// launcher uses, and says what would keep ranks from moving between them. Needs no job. Asks all
// nodes at once; one that does not answer in time is a finding.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "wire/preflight.pb.h"

namespace xmpi::ctl {

struct DoctorWords {
  std::vector<std::string> nodes;  // beside this one
  std::string proxy_path;          // empty: beside xmpictl
  bool json = false;
};

// What is known of one node.
struct Patient {
  std::string node;
  Result<wire::NodeFacts> facts = {};
};

// 0, or 1 when something found would refuse a move. An Error is kUsage.
Result<int> Doctor(const DoctorWords& words, const std::function<void(const std::string&)>& print);

// Everything that is wrong with the nodes alone and between any two of them.
wire::Findings Examine(const std::vector<Patient>& patients);

// What `xmpi-proxy --facts` printed.
Result<wire::NodeFacts> ParseFacts(const std::string& node, std::string text);

}  // namespace xmpi::ctl
