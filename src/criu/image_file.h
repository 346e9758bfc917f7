// CRIU's image files as such: two magic numbers, then messages, each behind its length. The
// messages are read as numbered fields, so whatever else is in them stays as it was. Keeps nothing.
#pragma once

#include <google/protobuf/unknown_field_set.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace xmpi::criu {

using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

inline constexpr std::size_t kMagicBytes = 8;

// nullopt: there is none.
std::optional<std::string> ReadImage(int directory, const char* name);
// In the place of what was there; made when it is missing.
Result<> WriteImage(int directory, const char* name, const std::string& bytes);

// Views into `image`.
Result<std::vector<std::string_view>> Messages(std::string_view image, const char* name);
Result<> Parse(std::string_view message, const char* name, UnknownFieldSet* fields);
void AppendMessage(std::string_view message, std::string* image);
void AppendMessage(const UnknownFieldSet& message, std::string* image);

// The field of this number, nullptr when there is none; its value, 0 when there is none.
UnknownField* FindField(UnknownFieldSet* fields, int number);
std::uint64_t Number(UnknownFieldSet* fields, int number);

}  // namespace xmpi::criu
