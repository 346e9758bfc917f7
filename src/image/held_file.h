// HeldFile: a file on some file system that a rank has open or mapped by name, as its node sees it;
// and Sight, what another node sees under that name. Values and their encoding only: the lists
// travel in the manifest of an image, and before it in the chunks `files` and `sights`
// (docs/image-stream.md). Decoding trusts nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/ids.h"
#include "image/names.h"

namespace xmpi::image {

// One state of one file. Two that are equal are the same state: nobody sets a file's change time.
struct FileState {
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::uint64_t modified_ns = 0;  // since 1970
  std::uint64_t changed_ns = 0;
  bool operator==(const FileState&) const = default;
};

enum class FileUse : std::uint8_t {
  kWritten = 1,  // open for writing, or mapped shared and writable
  kRead = 2,     // open for reading only
  kMapped = 3,   // pages of it are mapped, read-only or private, and no code among them
  kFolder = 4,   // open, or the working directory
  kDeleted = 5,  // has no name any more; travels inside CRIU's own image
};

struct HeldFile {
  RankId rank = 0;
  std::string path;
  FileUse use{};
  bool shared = false;       // by the type of its file system: every node that has it sees the same
  bool memory = false;       // in /dev/shm, which each slot has for itself
  bool locked = false;       // a file lock is held on it
  std::string file_system;   // its type, for people: "nfs", "ext"
  std::string kernel;        // which running kernel saw it (its boot id), with
  std::uint64_t device = 0;  // this number for the file system
  std::uint32_t mode = 0;
  std::uint32_t user = 0;
  std::uint32_t group = 0;
  FileState state;
  std::vector<FileState> earlier;  // as it was left behind by moves before, oldest first
  std::string content;             // the image's file that has its bytes; empty: it is not carried
  bool operator==(const HeldFile&) const = default;
};

enum class Sight : std::uint8_t {
  kSame = 1,     // the same file, or for one that is only read an equal one
  kMissing = 2,  // nothing has that name
  kLeft = 3,     // a state of it that an earlier move left behind
  kOther = 4,    // another file
  kPerhaps = 5,  // as large as it; whether it is equal, its hash tells
};

struct Seen {
  Sight sight{};
  Hash128 hash;  // of kPerhaps
  bool operator==(const Seen&) const = default;
};

inline constexpr std::size_t kMaxHeldFiles = 8192;
inline constexpr std::size_t kMaxEarlierStates = 16;
inline constexpr std::size_t kMaxPathBytes = 4096;

void PutHeldFiles(ByteWriter& out, const std::vector<HeldFile>& files);
// Clears `good` when they are malformed.
std::vector<HeldFile> GetHeldFiles(ByteReader& in, bool* good);

// As chunks carry them: the files in question, and for each of them in order what is seen.
std::string EncodeHeldFiles(const std::vector<HeldFile>& files);
Result<std::vector<HeldFile>> DecodeHeldFiles(std::string_view bytes);
std::string EncodeSights(const std::vector<Seen>& sights);
Result<std::vector<Seen>> DecodeSights(std::string_view bytes);

}  // namespace xmpi::image
