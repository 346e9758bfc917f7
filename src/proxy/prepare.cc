#include "proxy/prepare.h"

#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <format>
#include <system_error>

namespace xmpi::proxy {
namespace {

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "; ") + line;
  return text;
}

std::string PathOf(const wire::Launch& launch, const wire::RankSpec& rank) {
  for (const wire::EnvironmentVariable& each : rank.environment()) {
    if (each.name() == "PATH") return each.value();
  }
  for (const std::string& name : launch.inherit_environment()) {
    const char* value = name == "PATH" ? std::getenv("PATH") : nullptr;
    if (value != nullptr) return value;
  }
  return "/bin:/usr/bin";
}

Result<> CheckNamespaces(const os::Slot& slot) {
  if (slot.has_namespaces()) return {};
  return Fail(ErrorCode::kRefused,
              std::format("{}; run as root or give xmpi-proxy the privilege", Joined(slot.lost())));
}

// io_uring's kernel state is in no image; CRIU finds out only in the middle of the dump.
Result<> CheckDescriptors(RankId rank, pid_t host_pid) {
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::format("/proc/{}/fd", host_pid), error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (error || target != "anon_inode:[io_uring]") continue;
    return Fail(ErrorCode::kRefused,
                std::format("rank {} (PID {}) has an io_uring on descriptor {}, which cannot move; "
                            "the program must close it before XMPI_Quiesce",
                            rank, host_pid, entry.path().filename().string()));
  }
  return {};
}

}  // namespace

Result<std::string> FindProgram(const std::string& program, const std::string& directory,
                                const std::string& path) {
  const auto usable = [](const std::string& file) {
    struct stat info{};
    return stat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
           access(file.c_str(), X_OK) == 0;
  };
  const auto from_directory = [&](const std::string& file) {
    return (std::filesystem::path(directory.empty() ? "/" : directory) / file).string();
  };
  if (program.contains('/')) {
    const std::string file = from_directory(program);
    if (usable(file)) return file;
    return Fail(std::format("{} is not there or not executable", file));
  }
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find(':', at), path.size());
    const std::string file = from_directory(path.substr(at, end - at) + "/" + program);
    if (usable(file)) return file;
    at = end + 1;
  }
  return Fail(std::format("{} is not in PATH ({})", program, path));
}

Result<> CheckTarget(const wire::Launch& launch, const os::Slot& slot, const std::string& node) {
  XMPI_RETURN_IF_ERROR(CheckNamespaces(slot));
  for (const wire::RankSpec& rank : launch.ranks()) {
    const std::string& directory = rank.working_directory();
    struct stat info{};
    if (!directory.empty() && (stat(directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)))
      return Fail(ErrorCode::kRefused,
                  std::format("the working directory of rank {}, {}, is not on {}", rank.rank(),
                              directory, node));
    const auto program =
        FindProgram(rank.argv().empty() ? "" : rank.argv(0), directory, PathOf(launch, rank));
    if (!program)
      return Fail(ErrorCode::kRefused, std::format("the program of rank {} is not on {}: {}",
                                                   rank.rank(), node, program.error().message));
  }
  return {};
}

Result<> CheckSource(const std::map<RankId, Ranks::Process>& ranks, const os::Slot& slot) {
  XMPI_RETURN_IF_ERROR(CheckNamespaces(slot));
  for (const auto& [rank, process] : ranks)
    XMPI_RETURN_IF_ERROR(CheckDescriptors(rank, process.host_pid));
  return {};
}

std::uint64_t MemoryBytes() {
  struct sysinfo info{};
  if (sysinfo(&info) != 0) return 0;
  return static_cast<std::uint64_t>(info.totalram) * info.mem_unit;
}

}  // namespace xmpi::proxy
