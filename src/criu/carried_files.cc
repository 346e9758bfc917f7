#include "criu/carried_files.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <format>
#include <utility>

#include "criu/held_files.h"
#include "image/hash.h"

namespace xmpi::criu {
namespace {

using image::FileUse;
using image::HeldFile;
using image::Seen;
using image::Sight;

// Symbolic links on the way are the slot's own.
Fd OpenIn(const Fd& root, const std::string& path, std::uint64_t flags) {
  open_how how{};
  how.flags = flags | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT;
  return Fd(static_cast<int>(syscall(SYS_openat2, root.get(), path.c_str(), &how, sizeof how)));
}

std::string FolderOf(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }
std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

Result<image::Hash128> HashOfFile(int fd) {
  image::Hasher hasher;
  std::vector<std::byte> buffer(1u << 20);
  for (;;) {
    const ssize_t size = read(fd, buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return std::unexpected(ErrnoError("read a file"));
    if (size == 0) return hasher.Digest();
    hasher.Update(std::span(buffer).first(static_cast<std::size_t>(size)));
  }
}

Result<> CopyAll(int from, int to, std::uint64_t size) {
  off_t at = 0;
  while (static_cast<std::uint64_t>(at) < size) {
    const ssize_t copied = sendfile(to, from, &at, size - static_cast<std::uint64_t>(at));
    if (copied < 0 && errno == EINTR) continue;
    if (copied < 0) return std::unexpected(ErrnoError("write"));
    if (copied == 0) return Fail("its content is shorter than it should be");
  }
  return {};
}

Result<> SetMetadata(int fd, const HeldFile& file) {
  const auto seconds = static_cast<time_t>(file.state.modified_ns / 1'000'000'000u);
  const auto rest = static_cast<long>(file.state.modified_ns % 1'000'000'000u);
  const timespec times[2] = {{0, UTIME_NOW}, {seconds, rest}};
  // Who may not give files away keeps them: the ranks are the same user's.
  if (fchown(fd, file.user, file.group) != 0 && errno != EPERM)
    return std::unexpected(ErrnoError("set the owner"));
  if (fchmod(fd, file.mode & 07777) != 0) return std::unexpected(ErrnoError("set the mode"));
  if (futimens(fd, times) != 0) return std::unexpected(ErrnoError("set the time"));
  return {};
}

bool IsSameFile(const HeldFile& file, const image::FileState& state, std::uint64_t device) {
  return file.kernel == KernelId() && file.device == device && file.state.inode == state.inode;
}

}  // namespace

CarriedFiles::~CarriedFiles() {
  if (kept_) return;
  for (const auto& [path, modified_ns] : written_) {
    const Fd folder = OpenIn(root_, FolderOf(path), O_PATH | O_DIRECTORY);
    if (folder) unlinkat(folder.get(), NameOf(path).c_str(), 0);
  }
}

void CarriedFiles::Keep() {
  const std::lock_guard lock(mutex_);
  kept_ = true;
}

std::vector<image::FileState> CarriedFiles::Earlier(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return earlier_[path];
}

std::vector<Seen> CarriedFiles::Look(const std::vector<HeldFile>& files) {
  std::vector<Seen> seen;
  for (const HeldFile& file : files) seen.push_back(LookAt(file));
  return seen;
}

Seen CarriedFiles::LookAt(const HeldFile& file) const {
  if (file.use == FileUse::kDeleted) return {Sight::kSame, {}};
  const Fd found = OpenIn(root_, file.path, O_PATH);
  if (!found) return {errno == ENOENT || errno == ENOTDIR ? Sight::kMissing : Sight::kOther, {}};
  struct stat info{};
  struct statfs system{};
  if (fstat(found.get(), &info) != 0 || fstatfs(found.get(), &system) != 0)
    return {Sight::kOther, {}};
  if (file.use == FileUse::kFolder)
    return {S_ISDIR(info.st_mode) ? Sight::kSame : Sight::kOther, {}};
  if (!S_ISREG(info.st_mode)) return {Sight::kOther, {}};
  std::uint64_t device = 0;
  const image::FileState state = StateOfFile(found.get(), "", AT_EMPTY_PATH, &device);
  const bool shared_here = IsSharedType(static_cast<std::uint64_t>(system.f_type) & 0xffffffff);
  // A node may export what the others mount: the numbers of its files are the same everywhere.
  if ((file.shared && shared_here) ||
      ((file.shared || shared_here) && file.state.inode == state.inode))
    return {Sight::kSame, {}};
  if (file.shared) return {Sight::kOther, {}};
  if (IsSameFile(file, state, device)) return {Sight::kSame, {}};
  if (std::ranges::contains(file.earlier, state)) return {Sight::kLeft, {}};
  if (file.use == FileUse::kWritten || file.state.size != state.size) return {Sight::kOther, {}};
  if (file.use == FileUse::kMapped || file.state.modified_ns == state.modified_ns)
    return {Sight::kSame, {}};
  const Fd content = OpenIn(root_, file.path, O_RDONLY);
  const auto hash = content ? HashOfFile(content.get()) : Fail("not readable");
  return hash ? Seen{Sight::kPerhaps, *hash} : Seen{Sight::kOther, {}};
}

Result<> CarriedFiles::Put(const image::RankImage& image) {
  const std::lock_guard lock(mutex_);
  for (const HeldFile& file : image.manifest.held) {
    if (file.content.empty()) continue;
    if (Result<> put = PutFile(image, file); !put) {
      return Fail(std::format("cannot put {} here, which the rank has open there: {}", file.path,
                              put.error().message));
    }
    std::vector<image::FileState>& states = earlier_[file.path];
    states = file.earlier;
    states.push_back(file.state);
    if (states.size() > image::kMaxEarlierStates) states.erase(states.begin());
  }
  return {};
}

Result<> CarriedFiles::Take(const std::set<std::string>& at_target, image::RankImage* image) {
  const auto carried = std::ranges::count_if(
      image->manifest.held, [](const HeldFile& file) { return !file.content.empty(); });
  auto number = static_cast<std::size_t>(carried);
  for (HeldFile& file : image->manifest.held) {
    if (file.shared || !file.content.empty() || at_target.contains(file.path)) continue;
    Fd content = OpenIn(root_, file.path, O_RDONLY);
    if (!content)
      return std::unexpected(
          ErrnoError(std::format("read {}, which the rank has open", file.path)));
    file.state = StateOfFile(content.get(), "", AT_EMPTY_PATH, &file.device);
    file.earlier = Earlier(file.path);
    file.content = std::format("held-{}", number++);
    image->manifest.files.push_back({file.content, file.state.size, {}});
    image->elsewhere.emplace(file.content, std::move(content));
  }
  return {};
}

// As far as its length and time of change tell.
bool CarriedFiles::IsAsWritten(const HeldFile& file) const {
  const Fd found = OpenIn(root_, file.path, O_PATH);
  if (!found) return false;
  std::uint64_t device = 0;
  const image::FileState state = StateOfFile(found.get(), "", AT_EMPTY_PATH, &device);
  return state.size == file.state.size && state.modified_ns == file.state.modified_ns;
}

Result<> CarriedFiles::PutFile(const image::RankImage& image, const HeldFile& file) {
  const Fd content(openat(image.directory.get(), file.content.c_str(), O_RDONLY | O_CLOEXEC));
  if (!content) return std::unexpected(ErrnoError("open its content"));
  const auto before = written_.find(file.path);
  if (before != written_.end() && OpenIn(root_, file.path, O_PATH)) {
    if (before->second > file.state.modified_ns || IsAsWritten(file)) return {};
    before->second = file.state.modified_ns;
    return Overwrite(content, file);
  }
  const Seen seen = LookAt(file);
  bool equal = seen.sight == Sight::kSame;
  if (seen.sight == Sight::kPerhaps) {
    const auto known =
        std::ranges::find(image.manifest.files, file.content, &image::ManifestFile::name);
    equal = known != image.manifest.files.end() && known->hash == seen.hash;
  }
  if (equal) return {};
  if (seen.sight != Sight::kMissing && seen.sight != Sight::kLeft)
    return Fail("another file of that name is here; remove it or put the file on shared storage");
  XMPI_RETURN_IF_ERROR(Create(content, file, seen.sight == Sight::kLeft));
  written_[file.path] = file.state.modified_ns;
  return {};
}

Result<> CarriedFiles::Create(const Fd& content, const HeldFile& file, bool replace) {
  XMPI_ASSIGN_OR_RETURN(const Fd folder, Folder(file.path));
  const std::string name = NameOf(file.path);
  const std::string draft = std::format(".xmpi-{}-{}", getpid(), written_.size());
  const Fd out(openat(folder.get(), draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!out) return std::unexpected(ErrnoError("create it"));
  Result<> done = CopyAll(content.get(), out.get(), file.state.size);
  if (done) done = SetMetadata(out.get(), file);
  if (done && renameat2(folder.get(), draft.c_str(), folder.get(), name.c_str(),
                        replace ? 0 : RENAME_NOREPLACE) != 0)
    done = std::unexpected(ErrnoError("give it its name"));
  if (!done) unlinkat(folder.get(), draft.c_str(), 0);
  return done;
}

// In place: a copy that was restored before may have it open.
Result<> CarriedFiles::Overwrite(const Fd& content, const HeldFile& file) {
  const Fd out = OpenIn(root_, file.path, O_WRONLY);
  if (!out) return std::unexpected(ErrnoError("open it"));
  XMPI_RETURN_IF_ERROR(CopyAll(content.get(), out.get(), file.state.size));
  if (ftruncate(out.get(), static_cast<off_t>(file.state.size)) != 0)
    return std::unexpected(ErrnoError("size it"));
  return SetMetadata(out.get(), file);
}

Result<Fd> CarriedFiles::Folder(const std::string& path) const {
  Fd folder = OpenIn(root_, "/", O_PATH | O_DIRECTORY);
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    const std::string prefix = path.substr(0, at);
    Fd next = OpenIn(root_, prefix, O_PATH | O_DIRECTORY);
    if (!next && errno == ENOENT &&
        (mkdirat(folder.get(), NameOf(prefix).c_str(), 0755) == 0 || errno == EEXIST))
      next = OpenIn(root_, prefix, O_PATH | O_DIRECTORY);
    if (!next) return std::unexpected(ErrnoError(std::format("make the folder {}", prefix)));
    folder = std::move(next);
  }
  if (!folder) return std::unexpected(ErrnoError("open /"));
  return folder;
}

}  // namespace xmpi::criu
