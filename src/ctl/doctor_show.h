// What xmpictl doctor found, as text for a person or as JSON for a script. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ctl/doctor.h"

namespace xmpi::ctl {

std::string ShowDoctor(const std::vector<Patient>& patients, const wire::Findings& findings);
nlohmann::ordered_json DoctorJson(const std::vector<Patient>& patients,
                                  const wire::Findings& findings);

}  // namespace xmpi::ctl
