#include "os/control_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <format>

namespace xmpi::os {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kSuffix = ".sock";

Result<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (path.size() >= sizeof address.sun_path)
    return Fail(std::format(
        "{} is too long for a socket's name; set XDG_RUNTIME_DIR to a shorter one", path));
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

std::string PathIn(const std::string& folder, std::string_view job) {
  return std::format("{}/{}{}", folder, job, kSuffix);
}

// In /tmp anybody could have made the folder first, and would see and answer our operator.
Result<> CheckFolder(const std::string& folder) {
  struct stat found{};
  if (lstat(folder.c_str(), &found) != 0) return std::unexpected(ErrnoError(folder));
  if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & 077) != 0)
    return Fail(
        std::format("{} must be a folder of yours with mode 0700; remove it, or set "
                    "XDG_RUNTIME_DIR to a folder of your own",
                    folder));
  return {};
}

Result<> MakeFolder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    Error error = ErrnoError(folder);
    error.message += "; set XDG_RUNTIME_DIR to a folder of your own, or unset it for /tmp";
    return std::unexpected(std::move(error));
  }
  return CheckFolder(folder);
}

std::string FolderIn(std::string_view parent) {
  return std::format("{}/xmpi-{}", parent, geteuid());
}

// Where a job may be found. Who asks may have another environment than who started it: a login has
// XDG_RUNTIME_DIR, a service that hears of a node's end has not.
std::vector<std::string> FoldersToSearch() {
  std::vector<std::string> folders{ControlFolder()};
  for (const std::string& parent : {std::format("/run/user/{}", geteuid()), std::string("/tmp")}) {
    const std::string folder = FolderIn(parent);
    if (std::ranges::find(folders, folder) == folders.end() && CheckFolder(folder))
      folders.push_back(folder);
  }
  return folders;
}

Result<Fd> Connect(const std::string& path) {
  XMPI_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return std::unexpected(ErrnoError("socket"));
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const bool dead = errno == ECONNREFUSED;
    Error error = ErrnoError(path);
    error.code = ErrorCode::kUnreachable;
    if (dead) unlink(path.c_str());
    return std::unexpected(std::move(error));
  }
  return socket;
}

void AddJobsIn(const std::string& folder, std::vector<std::string>* jobs) {
  std::error_code ignored;  // the folder goes with the last job
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() != kSuffix) continue;
    if (Connect(entry.path().string())) jobs->push_back(entry.path().stem().string());
  }
  rmdir(folder.c_str());  // when only dead launchers had left something in it
}

// The folder may go between making it and using it: another job has just ended.
int BindIn(const Fd& socket, const sockaddr_un& address) {
  const auto* plain = reinterpret_cast<const sockaddr*>(&address);
  int result = -1;
  for (int tries = 0; tries < 10 && result != 0; ++tries) {
    result = bind(socket.get(), plain, sizeof address);
    if (result == 0 || errno != ENOENT || !MakeFolder(ControlFolder())) break;
  }
  return result;
}

// A socket that is bound but does not listen yet looks dead to everybody, who would remove it: it
// gets the job's name only when it listens and has its mode.
Result<Fd> ListenAs(const std::string& path) {
  const std::string unnamed = std::format("{}.{}", path, getpid());
  XMPI_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(unnamed));
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return std::unexpected(ErrnoError("socket"));
  if (BindIn(socket, address) != 0) return std::unexpected(ErrnoError(path));
  if (chmod(unnamed.c_str(), 0600) != 0 || listen(socket.get(), 16) != 0 ||
      rename(unnamed.c_str(), path.c_str()) != 0) {
    Error error = ErrnoError(path);
    unlink(unnamed.c_str());
    return std::unexpected(std::move(error));
  }
  return socket;
}

}  // namespace

std::string ControlFolder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  return FolderIn(runtime != nullptr && *runtime != '\0' ? runtime : "/tmp");
}

ControlListener::ControlListener(Fd socket, std::string path)
    : socket_(std::move(socket)), path_(std::move(path)) {}

ControlListener::~ControlListener() {
  if (!socket_) return;
  unlink(path_.c_str());
  rmdir(fs::path(path_).parent_path().c_str());  // when this was the last job
}

Result<ControlListener> ControlListener::Listen(std::string_view job) {
  XMPI_RETURN_IF_ERROR(MakeFolder(ControlFolder()));
  std::string path = PathIn(ControlFolder(), job);
  if (Connect(path))
    return Fail(
        ErrorCode::kRefused,
        std::format("a job named {} is running already; choose another name with -job", job));
  XMPI_ASSIGN_OR_RETURN(Fd socket, ListenAs(path));
  return ControlListener(std::move(socket), std::move(path));
}

Result<Fd> ConnectControl(std::string_view job) {
  const bool plain = !job.empty() && !job.contains('/') && job[0] != '.';
  if (plain) {
    for (const std::string& folder : FoldersToSearch()) {
      if (!CheckFolder(folder)) continue;
      if (auto socket = Connect(PathIn(folder, job))) return socket;
    }
  }
  return Fail(ErrorCode::kUnreachable,
              std::format("no job of yours on this host is called {}; `xmpictl list` shows those "
                          "that run",
                          job));
}

Result<std::vector<std::string>> ControlJobs() {
  std::vector<std::string> jobs;
  for (const std::string& folder : FoldersToSearch()) {
    if (access(folder.c_str(), F_OK) != 0) continue;
    XMPI_RETURN_IF_ERROR(CheckFolder(folder));
    AddJobsIn(folder, &jobs);
  }
  std::ranges::sort(jobs);
  const auto doubled = std::ranges::unique(jobs);
  jobs.erase(doubled.begin(), doubled.end());
  return jobs;
}

bool PeerIsThisUser(const Fd& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == geteuid() || peer.uid == 0;
}

}  // namespace xmpi::os
