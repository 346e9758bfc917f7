// What happens, in words, for the transcript of a run.
#pragma once

#include <string>

#include "core/action.h"
#include "core/event.h"

namespace xmpi::sim {

std::string Describe(const wire::Envelope& envelope);
std::string Describe(const core::Event& event);
std::string Describe(const core::Record& record);

}  // namespace xmpi::sim
