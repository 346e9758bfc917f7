// Facts about files of this node: what is at a path, its size and its build-id. Reads files and
// /proc; changes nothing.
#pragma once

#include <map>
#include <string>

#include "base/error.h"
#include "wire/preflight.pb.h"

namespace xmpi::preflight {

// The GNU build-id of an ELF file, as bytes; empty when it is no ELF file or has none.
std::string BuildIdOf(int fd);

// Looks at paths, each at most once: as this process sees them, or as `process` does ("/proc/12").
class Files {
 public:
  explicit Files(const std::string& process = "/proc/self");
  const wire::FileFacts& At(const std::string& path);

 private:
  std::string root_;
  std::map<std::string, wire::FileFacts> known_;
};

}  // namespace xmpi::preflight
