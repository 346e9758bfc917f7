// Facts about files of this node: what is at a path, its build-id, and whether other nodes see the
// same file. Reads files and /proc; changes nothing.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/error.h"
#include "wire/preflight.pb.h"

namespace xmpi::preflight {

// The GNU build-id of an ELF file, as bytes; empty when it is no ELF file or has none.
std::string BuildIdOf(int fd);

// A file system that several nodes see, by its type in /proc/mounts: nfs, lustre, a cluster's fuse.
bool IsShared(std::string_view file_system);

// Looks at paths, each at most once: as this process sees them, or as `process` does ("/proc/12").
class Files {
 public:
  explicit Files(const std::string& process = "/proc/self");
  // Everything but the build-id, which only `with_build_id` reads.
  const wire::FileFacts& At(const std::string& path, bool with_build_id);

 private:
  std::string FileSystemAt(const std::string& path) const;

  std::string root_;
  std::map<std::string, std::string> mounts_;  // where, and the type
  std::map<std::string, wire::FileFacts> known_;
};

}  // namespace xmpi::preflight
