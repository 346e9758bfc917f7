// The manifest of one rank's image: who the rank is, which descriptors tie it to its proxy, which
// files the image has with length and checksum, the bytes that were left unread in its pipes, and a
// note from proxy to proxy.
// It is the last thing sent and the first thing checked: an image without a manifest that fits it
// does not exist. Fixed binary format, version in the chunk header; decoding trusts nothing.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/ids.h"
#include "image/held_file.h"
#include "image/names.h"
#include "image/pages.h"

namespace xmpi::image {

// What a descriptor is for; the number of a kind is part of the format.
enum class TieKind : std::uint8_t { kControl = 1, kPmi = 2, kStdin = 3, kStdout = 4, kStderr = 5 };
const char* ToString(TieKind kind);

// A pipe or socket end in the rank whose other end was the proxy's.
struct ManifestTie {
  TieKind kind{};
  bool is_pipe = false;  // else a Unix socket
  std::uint64_t inode = 0;
  std::string unread;  // a pipe that the rank reads: what was in it at the dump, in order
  bool operator==(const ManifestTie&) const = default;
};

struct ManifestFile {
  std::string name;  // a plain file name
  std::uint64_t length = 0;
  Hash128 hash;  // XXH3-128 of the whole file
  bool operator==(const ManifestFile&) const = default;
};

struct Manifest {
  RankId rank = 0;
  pid_t pid = 0;                 // in the slot
  std::vector<pid_t> used_pids;  // every PID, TID, process group and session id of the rank's tree
  std::vector<ManifestTie> ties;
  std::vector<ManifestFile> files;
  std::string note;  // what the proxy tells the next one of the rank; nothing here reads it
  std::vector<HeldFile> held;        // outside the image, by name
  std::vector<TaskMemory> memory{};  // what travels as pages, by process
  bool operator==(const Manifest&) const = default;
};

// One rank's image in memory. Closing the directory frees it. On the source some of its files are
// not there but where the rank has them: held files that are carried.
struct RankImage {
  Fd directory;
  Manifest manifest;
  std::map<std::string, Fd> elsewhere{};  // by the file's name in the image
  // Where what the manifest's `memory` names is read: the stopped original, or what is held here.
  std::shared_ptr<PageSource> pages{};
};

// Limits, and why: a manifest is held in memory whole before it is believed.
inline constexpr std::size_t kMaxManifestBytes = 64u << 20;  // four million runs of pages
inline constexpr std::size_t kMaxFiles = 65536;              // CRIU writes a few per process
inline constexpr std::size_t kMaxUsedPids = 262144;          // threads of one rank's tree
inline constexpr std::size_t kMaxTasks = 4096;               // processes of one rank's tree
inline constexpr std::size_t kMaxTies = 64;
inline constexpr std::size_t kMaxUnreadBytes = 2u << 20;  // fs.pipe-max-size is 1 MiB
inline constexpr std::size_t kMaxNoteBytes = 1u << 20;    // standard input on its way, and numbers

std::string Encode(const Manifest& manifest);
Result<Manifest> DecodeManifest(std::string_view bytes);

}  // namespace xmpi::image
