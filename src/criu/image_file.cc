#include "criu/image_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <format>

#include "base/check.h"
#include "base/fd.h"

namespace xmpi::criu {

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
  const Fd file(openat(directory, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  for (std::size_t at = 0; file && at < bytes.size();) {
    const ssize_t size = write(file.get(), bytes.data() + at, bytes.size() - at);
    if (size <= 0) return std::unexpected(ErrnoError(std::format("write {} of an image", name)));
    at += static_cast<std::size_t>(size);
  }
  if (!file) return std::unexpected(ErrnoError(std::format("open {} of an image", name)));
  return {};
}

Result<std::vector<std::string_view>> Messages(std::string_view image, const char* name) {
  std::vector<std::string_view> messages;
  if (image.size() < kMagicBytes) return Fail(std::format("{} of CRIU ends too early", name));
  for (image.remove_prefix(kMagicBytes); !image.empty();) {
    std::uint32_t size = 0;
    if (image.size() < sizeof size) return Fail(std::format("{} of CRIU ends too early", name));
    std::memcpy(&size, image.data(), sizeof size);
    image.remove_prefix(sizeof size);
    if (image.size() < size) return Fail(std::format("{} of CRIU ends too early", name));
    messages.push_back(image.substr(0, size));
    image.remove_prefix(size);
  }
  return messages;
}

Result<> Parse(std::string_view message, const char* name, UnknownFieldSet* fields) {
  if (fields->ParseFromArray(message.data(), static_cast<int>(message.size()))) return {};
  return Fail(std::format("{} of CRIU is not as it should be", name));
}

void AppendMessage(std::string_view message, std::string* image) {
  const auto size = static_cast<std::uint32_t>(message.size());
  image->append(reinterpret_cast<const char*>(&size), sizeof size);
  image->append(message);
}

void AppendMessage(const UnknownFieldSet& message, std::string* image) {
  std::string bytes;
  XMPI_CHECK(message.SerializeToString(&bytes));
  AppendMessage(bytes, image);
}

UnknownField* FindField(UnknownFieldSet* fields, int number) {
  for (int i = 0; i < fields->field_count(); ++i) {
    if (fields->field(i).number() == number) return fields->mutable_field(i);
  }
  return nullptr;
}

std::uint64_t Number(UnknownFieldSet* fields, int number) {
  const UnknownField* field = FindField(fields, number);
  return field != nullptr && field->type() == UnknownField::TYPE_VARINT ? field->varint() : 0;
}

}  // namespace xmpi::criu
