// The files that a rank's processes hold, as the source's /proc shows them; and which of them are
// in the way of a move. Reads /proc and the files' metadata; opens nothing but /proc, keeps
// nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "criu/process_tree.h"
#include "image/held_file.h"

namespace xmpi::criu {

// A held file and how to reach it while the process lives.
struct Held {
  image::HeldFile file;
  std::string link;  // below the /proc given: "12/fd/3", "12/map_files/a-b", "12/cwd"
};

// Each file once, however often it is open; written beats mapped beats read. Not those of /proc and
// the like, nor programs and libraries.
std::vector<Held> ReadHeldFiles(int proc_fd, RankId rank, const std::vector<Process>& tree);

// A deleted file that a process outside the tree holds too: after the move there would be two.
// Empty: none.
std::string SharedDeletedFile(int proc_fd, const std::vector<Process>& tree);

// The boot id of the kernel that runs here.
const std::string& KernelId();
// Whether every node sees the same files in a file system of this type (statfs f_type).
bool IsSharedType(std::uint64_t type);
std::string FileSystemName(std::uint64_t type);

image::FileState StateOfFile(int directory, const char* path, int flags, std::uint64_t* device);

}  // namespace xmpi::criu
