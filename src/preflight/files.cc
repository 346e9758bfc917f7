#include "preflight/files.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

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

Files::Files(const std::string& process) : root_(process + "/root") {}

const wire::FileFacts& Files::At(const std::string& path) {
  const auto [place, is_new] = known_.try_emplace(path);
  wire::FileFacts& facts = place->second;
  if (!is_new) return facts;
  facts.set_path(path);
  const Fd file(open((root_ + path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info{};
  if (!file || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return facts;
  facts.set_is_regular(true);
  facts.set_size(static_cast<std::uint64_t>(info.st_size));
  facts.set_build_id(BuildIdOf(file.get()));
  return facts;
}

}  // namespace xmpi::preflight
