#include "image/directory_storage.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <format>

namespace xmpi::image {

Result<> DirectoryStorage::Create(RankId rank, std::uint32_t file, const std::string& name,
                                  std::uint64_t length) {
  Rank& place = ranks_[rank];
  if (!place.directory) {
    Result<Fd> made = make_(rank);
    if (!made) return std::unexpected(WithContext("no place for an image", made.error()));
    place.directory = std::move(*made);
  }
  Fd fd(openat(place.directory.get(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return std::unexpected(ErrnoError(std::format("create {} of an image", name)));
  if (ftruncate(fd.get(), static_cast<off_t>(length)) != 0) {
    return std::unexpected(ErrnoError(std::format("size {} of an image", name)));
  }
  place.files[file] = std::move(fd);
  return {};
}

Result<int> DirectoryStorage::FileFd(RankId rank, std::uint32_t file) {
  const auto place = ranks_.find(rank);
  if (place == ranks_.end()) return Fail(std::format("no image of rank {}", rank));
  const auto fd = place->second.files.find(file);
  if (fd == place->second.files.end())
    return Fail(std::format("no file {} of rank {}", file, rank));
  return fd->second.get();
}

Result<> DirectoryStorage::Write(RankId rank, std::uint32_t file, std::uint64_t offset,
                                 std::span<const std::byte> bytes) {
  XMPI_ASSIGN_OR_RETURN(const int fd, FileFd(rank, file));
  while (!bytes.empty()) {
    const ssize_t size = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return std::unexpected(ErrnoError("write an image"));
    bytes = bytes.subspan(static_cast<std::size_t>(size));
    offset += static_cast<std::uint64_t>(size);
  }
  return {};
}

Result<> DirectoryStorage::Read(RankId rank, std::uint32_t file, std::uint64_t offset,
                                std::span<std::byte> bytes) {
  XMPI_ASSIGN_OR_RETURN(const int fd, FileFd(rank, file));
  while (!bytes.empty()) {
    const ssize_t size = pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return std::unexpected(ErrnoError("read an image"));
    bytes = bytes.subspan(static_cast<std::size_t>(size));
    offset += static_cast<std::uint64_t>(size);
  }
  return {};
}

Result<Fd> DirectoryStorage::Open(RankId rank) const {
  const auto place = ranks_.find(rank);
  if (place == ranks_.end()) return Fail(std::format("no image of rank {}", rank));
  Fd directory(fcntl(place->second.directory.get(), F_DUPFD_CLOEXEC, 3));
  if (!directory) return std::unexpected(ErrnoError("share an image"));
  return directory;
}

}  // namespace xmpi::image
