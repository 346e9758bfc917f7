#include "criu/image_edit.h"

#include <fcntl.h>
#include <google/protobuf/unknown_field_set.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <format>
#include <functional>
#include <optional>
#include <utility>

#include "base/fd.h"

namespace xmpi::criu {
namespace {

using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

// Of an image file: two magic numbers, then messages, each behind its length.
constexpr std::size_t kMagicBytes = 8;

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

UnknownField* Find(UnknownFieldSet* fields, int number) {
  for (int i = 0; i < fields->field_count(); ++i) {
    if (fields->field(i).number() == number) return fields->mutable_field(i);
  }
  return nullptr;
}
std::uint64_t Number(UnknownFieldSet* fields, int number) {
  const UnknownField* field = Find(fields, number);
  return field != nullptr && field->type() == UnknownField::TYPE_VARINT ? field->varint() : 0;
}

std::optional<std::string> ReadImage(int directory, const char* name) {
  const Fd file(openat(directory, name, O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  std::string bytes;
  char buffer[1 << 16];
  for (ssize_t size; (size = read(file.get(), buffer, sizeof buffer)) > 0;)
    bytes.append(buffer, static_cast<std::size_t>(size));
  return bytes;
}

Result<> WriteImage(int directory, const char* name, const std::string& bytes) {
  const Fd file(openat(directory, name, O_WRONLY | O_TRUNC | O_CLOEXEC));
  for (std::size_t at = 0; file && at < bytes.size();) {
    const ssize_t size = write(file.get(), bytes.data() + at, bytes.size() - at);
    if (size <= 0) return std::unexpected(ErrnoError(std::format("write {} of an image", name)));
    at += static_cast<std::size_t>(size);
  }
  if (!file) return std::unexpected(ErrnoError(std::format("open {} of an image", name)));
  return {};
}

// `edit` says whether it has changed the message. An image that is not there has nothing to edit.
Result<> EachMessage(int directory, const char* name,
                     const std::function<bool(UnknownFieldSet*)>& edit) {
  const std::optional<std::string> bytes = ReadImage(directory, name);
  if (!bytes) return {};
  std::string out = bytes->substr(0, kMagicBytes);
  bool changed = false;
  for (std::size_t at = kMagicBytes; at < bytes->size();) {
    std::uint32_t size = 0;
    if (bytes->size() - at < sizeof size)
      return Fail(std::format("{} of CRIU ends too early", name));
    std::memcpy(&size, bytes->data() + at, sizeof size);
    at += sizeof size;
    UnknownFieldSet fields;
    if (bytes->size() - at < size ||
        !fields.ParseFromArray(bytes->data() + at, static_cast<int>(size)))
      return Fail(std::format("{} of CRIU is not as it should be", name));
    std::string message = bytes->substr(at, size);
    at += size;
    if (edit(&fields)) {
      changed = true;
      message.clear();
      if (!fields.SerializeToString(&message)) return Fail(std::format("cannot edit {}", name));
      size = static_cast<std::uint32_t>(message.size());
    }
    out.append(reinterpret_cast<const char*>(&size), sizeof size);
    out += message;
  }
  return changed ? WriteImage(directory, name, out) : Result<>();
}

bool EditPart(UnknownFieldSet* entry, int number,
              const std::function<bool(UnknownFieldSet*)>& edit) {
  UnknownField* part = Find(entry, number);
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
    UnknownField* name = Find(file, reg_file::kName);
    if (name == nullptr || name->type() != UnknownField::TYPE_LENGTH_DELIMITED) return false;
    std::string* path = name->mutable_length_delimited();
    const bool rename = ghosts.contains(Number(file, reg_file::kId)) && !path->ends_with(mark);
    if (rename) *path += mark;
    const bool resize = paths.contains(*path) && Find(file, reg_file::kSize) != nullptr;
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
