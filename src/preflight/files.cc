#include "preflight/files.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/fd.h"

namespace xmpi::preflight {
namespace {

// More notes than this in one segment are no build's.
constexpr std::size_t kNoteBytes = 64u << 10;
constexpr int kMaxSegments = 1024;

template <class T>
bool ReadAt(int fd, std::uint64_t offset, T* value) {
  return pread(fd, value, sizeof(T), static_cast<off_t>(offset)) == sizeof(T);
}

std::size_t Aligned(std::size_t size, std::size_t alignment) {
  const std::size_t unit = alignment == 8 ? 8 : 4;
  return (size + unit - 1) / unit * unit;
}

std::string BuildIdIn(std::string_view notes, std::size_t alignment) {
  while (notes.size() >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr note;
    std::memcpy(&note, notes.data(), sizeof note);
    notes.remove_prefix(sizeof note);
    const std::size_t name = Aligned(note.n_namesz, 4), body = Aligned(note.n_descsz, alignment);
    if (name > notes.size() || note.n_descsz > notes.size() - name) return "";
    const bool gnu = note.n_namesz == 4 && std::memcmp(notes.data(), "GNU", 4) == 0;
    if (gnu && note.n_type == NT_GNU_BUILD_ID)
      return std::string(notes.substr(name, note.n_descsz));
    notes.remove_prefix(std::min(name + body, notes.size()));
  }
  return "";
}

// /proc/mounts writes blanks in octal.
std::string Unescaped(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain += static_cast<char>(std::strtol(text.substr(i + 1, 3).c_str(), nullptr, 8));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

}  // namespace

std::string BuildIdOf(int fd) {
  Elf64_Ehdr header;
  if (!ReadAt(fd, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phnum > kMaxSegments)
    return "";
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    const std::uint64_t at = header.e_phoff + static_cast<std::uint64_t>(i) * header.e_phentsize;
    if (!ReadAt(fd, at, &segment)) return "";
    if (segment.p_type != PT_NOTE || segment.p_filesz > kNoteBytes) continue;
    std::string notes(segment.p_filesz, '\0');
    if (pread(fd, notes.data(), notes.size(), static_cast<off_t>(segment.p_offset)) !=
        static_cast<ssize_t>(notes.size()))
      return "";
    const std::string id = BuildIdIn(notes, segment.p_align);
    if (!id.empty()) return id;
  }
  return "";
}

bool IsShared(std::string_view file_system) {
  constexpr std::array<std::string_view, 15> kTypes = {
      "nfs", "nfs4",     "lustre", "beegfs", "ceph",     "gpfs", "cifs", "smb3",
      "9p",  "virtiofs", "gfs2",   "ocfs2",  "orangefs", "afs",  "fuse"};
  return std::ranges::find(kTypes, file_system) != kTypes.end() || file_system.starts_with("fuse.");
}

Files::Files(const std::string& process) : root_(process + "/root") {
  std::ifstream mounts(process + "/mounts");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string device, where, type;
    words >> device >> where >> type;
    mounts_[Unescaped(where)] = type;  // the last one hides those before it
  }
}

std::string Files::FileSystemAt(const std::string& path) const {
  for (std::string at = path;;) {
    const auto found = mounts_.find(at.empty() ? "/" : at);
    if (found != mounts_.end()) return found->second;
    if (at.empty()) return "";
    at.resize(at.find_last_of('/') == std::string::npos ? 0 : at.find_last_of('/'));
  }
}

const wire::FileFacts& Files::At(const std::string& path, bool with_build_id) {
  const auto [place, is_new] = known_.try_emplace(path);
  wire::FileFacts& facts = place->second;
  const std::string here = root_ + path;
  if (is_new) {
    facts.set_path(path);
    facts.set_file_system(FileSystemAt(path));
    facts.set_shared(IsShared(facts.file_system()));
    struct stat info{};
    if (stat(here.c_str(), &info) == 0) {
      facts.set_exists(true);
      facts.set_is_directory(S_ISDIR(info.st_mode));
      facts.set_is_regular(S_ISREG(info.st_mode));
      facts.set_executable((info.st_mode & 0111) != 0);
      facts.set_size(static_cast<std::uint64_t>(info.st_size));
      facts.set_inode(info.st_ino);
    }
  }
  if (with_build_id && facts.is_regular() && facts.build_id().empty()) {
    const Fd file(open(here.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file) facts.set_build_id(BuildIdOf(file.get()));
  }
  return facts;
}

}  // namespace xmpi::preflight
