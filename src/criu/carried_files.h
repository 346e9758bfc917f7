// CarriedFiles: what a slot's node sees, gets and has had of the files that its ranks hold by name.
// On the target it looks, and writes the content that an image brought, before the restore: never
// over a file that is not an earlier state of the same one. Until Keep() what it wrote goes with
// it. It also remembers how the files were left behind elsewhere, for the move back. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "image/held_file.h"
#include "image/manifest.h"

namespace xmpi::criu {

class CarriedFiles {
 public:
  // `root`: the slot's root directory; paths are resolved in it.
  explicit CarriedFiles(Fd root) : root_(std::move(root)) {}
  ~CarriedFiles();

  std::vector<image::Seen> Look(const std::vector<image::HeldFile>& files);
  // Everything of this image that is carried. Several ranks may bring the same file: the newest
  // wins. Put again, what has changed since is as it was.
  Result<> Put(const image::RankImage& image);
  // Adds to an image that was put here the files that did not come with it, since this node had
  // them, and that the next target lacks.
  Result<> Take(const std::set<std::string>& at_target, image::RankImage* image);
  void Keep();
  std::vector<image::FileState> Earlier(const std::string& path);

 private:
  image::Seen LookAt(const image::HeldFile& file) const;
  bool IsAsWritten(const image::HeldFile& file) const;
  Result<> PutFile(const image::RankImage& image, const image::HeldFile& file);
  Result<> Create(const Fd& content, const image::HeldFile& file, bool replace);
  Result<> Overwrite(const Fd& content, const image::HeldFile& file);
  // The file's folder, made when it is missing.
  Result<Fd> Folder(const std::string& path) const;

  const Fd root_;
  std::mutex mutex_;
  std::map<std::string, std::uint64_t>
      written_;  // by path: when it was modified on the source, in ns
  std::map<std::string, std::vector<image::FileState>> earlier_;
  bool kept_ = false;
};

}  // namespace xmpi::criu
