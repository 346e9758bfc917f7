#include "criu/image_edit.h"

#include <google/protobuf/unknown_field_set.h>

#include <cstdint>
#include <format>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "criu/image_file.h"

namespace xmpi::criu {
namespace {

// Fields of CRIU's messages by number.
namespace file_entry {
constexpr int kReg = 3, kTimerFd = 12;
}
namespace reg_file {
constexpr int kId = 1, kName = 6, kSize = 8;
}
namespace timer_fd {
constexpr int kTicks = 5, kSeconds = 7, kNanoseconds = 8, kPeriodSeconds = 9,
              kPeriodNanoseconds = 10;
}
namespace remap {
constexpr int kFile = 1, kType = 3;
constexpr std::uint64_t kGhost = 1;
}  // namespace remap

// `edit` says whether it has changed the message. An image that is not there has nothing to edit.
Result<> EachMessage(int directory, const char* name,
                     const std::function<bool(UnknownFieldSet*)>& edit) {
  const std::optional<std::string> bytes = ReadImage(directory, name);
  if (!bytes) return {};
  XMPI_ASSIGN_OR_RETURN(const std::vector<std::string_view> messages, Messages(*bytes, name));
  std::string out = bytes->substr(0, kMagicBytes);
  bool changed = false;
  for (const std::string_view message : messages) {
    UnknownFieldSet fields;
    XMPI_RETURN_IF_ERROR(Parse(message, name, &fields));
    const bool edited = edit(&fields);
    changed |= edited;
    edited ? AppendMessage(fields, &out) : AppendMessage(message, &out);
  }
  return changed ? WriteImage(directory, name, out) : Result<>();
}

bool EditPart(UnknownFieldSet* entry, int number,
              const std::function<bool(UnknownFieldSet*)>& edit) {
  UnknownField* part = FindField(entry, number);
  UnknownFieldSet fields;
  if (part == nullptr || part->type() != UnknownField::TYPE_LENGTH_DELIMITED ||
      !fields.ParseFromString(part->length_delimited()) || !edit(&fields))
    return false;
  return fields.SerializeToString(part->mutable_length_delimited());
}

bool KeepTicking(UnknownFieldSet* timer) {
  const bool stands =
      Number(timer, timer_fd::kSeconds) == 0 && Number(timer, timer_fd::kNanoseconds) == 0;
  const std::uint64_t seconds = Number(timer, timer_fd::kPeriodSeconds);
  const std::uint64_t nanoseconds = Number(timer, timer_fd::kPeriodNanoseconds);
  if (!stands || Number(timer, timer_fd::kTicks) == 0 || (seconds == 0 && nanoseconds == 0))
    return false;
  timer->DeleteByNumber(timer_fd::kSeconds);
  timer->DeleteByNumber(timer_fd::kNanoseconds);
  timer->AddVarint(timer_fd::kSeconds, seconds);
  timer->AddVarint(timer_fd::kNanoseconds, nanoseconds);
  return true;
}

}  // namespace

Result<> EditFileImages(int directory, RankId rank, const std::set<std::string>& paths) {
  std::set<std::uint64_t> ghosts;
  XMPI_RETURN_IF_ERROR(EachMessage(directory, "remap-fpath.img", [&](UnknownFieldSet* fields) {
    if (Number(fields, remap::kType) == remap::kGhost) ghosts.insert(Number(fields, remap::kFile));
    return false;
  }));
  const std::string mark = std::format(".rank{}", rank);
  const auto edit_file = [&](UnknownFieldSet* file) {
    UnknownField* name = FindField(file, reg_file::kName);
    if (name == nullptr || name->type() != UnknownField::TYPE_LENGTH_DELIMITED) return false;
    std::string* path = name->mutable_length_delimited();
    const bool rename = ghosts.contains(Number(file, reg_file::kId)) && !path->ends_with(mark);
    if (rename) *path += mark;
    const bool resize = paths.contains(*path) && FindField(file, reg_file::kSize) != nullptr;
    if (resize) file->DeleteByNumber(reg_file::kSize);
    return rename || resize;
  };
  return EachMessage(directory, "files.img", [&](UnknownFieldSet* entry) {
    const bool file = EditPart(entry, file_entry::kReg, edit_file);
    const bool timer = EditPart(entry, file_entry::kTimerFd, KeepTicking);
    return file || timer;
  });
}

}  // namespace xmpi::criu
