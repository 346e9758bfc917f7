#include "criu/eager_pages.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <format>
#include <optional>
#include <span>
#include <utility>

#include "criu/image_file.h"
#include "criu/pagemap.h"

namespace xmpi::criu {
namespace {

using image::kPageBytes;

// CRIU counts its pages files from 1; nobody has as many processes and mappings.
constexpr std::uint32_t kFirstNumber = 1u << 30;

// Makes the pages file that a restore which is not lazy wants from one that a lazy one wants.
class Writer {
 public:
  Writer(Fd from, Fd to, Pagemap* pagemap)
      : from_(std::move(from)), to_(std::move(to)), pagemap_(pagemap) {}

  Result<> Keep(const PagemapEntry& entry) {
    pagemap_->Append(entry);
    if ((entry.flags & kPagePresent) == 0) return {};
    for (std::uint64_t left = entry.pages * kPageBytes; left > 0;) {
      const ssize_t size = sendfile(to_.get(), from_.get(), nullptr, left);
      if (size == 0) return Fail("a pages file of CRIU ends too early");
      if (size < 0) return std::unexpected(ErrnoError("copy pages of an image"));
      left -= static_cast<std::uint64_t>(size);
    }
    return {};
  }

  // A page that no entry names is restored as zeros.
  Result<> Put(pid_t pid, PagemapEntry entry, image::StoredPages& pages) {
    while (entry.pages > 0) {
      const auto found = pages.Find(pid, entry.address, entry.pages);
      if (found.kind == image::StoredPages::Kind::kAbsent)
        return Fail(std::format("page {:#x} of PID {} is not here", entry.address, pid));
      if (found.kind == image::StoredPages::Kind::kData) {
        pagemap_->Append({entry.address, found.pages, kPageLazy | kPagePresent});
        XMPI_RETURN_IF_ERROR(Write({found.data, found.pages * kPageBytes}));
      }
      entry.pages -= found.pages;
      entry.address += found.pages * kPageBytes;
    }
    return {};
  }

 private:
  Result<> Write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t size = write(to_.get(), bytes.data(), bytes.size());
      if (size < 0) return std::unexpected(ErrnoError("write pages of an image"));
      bytes = bytes.subspan(static_cast<std::size_t>(size));
    }
    return {};
  }

  const Fd from_, to_;
  Pagemap* pagemap_;
};

}  // namespace

Result<std::unique_ptr<EagerPages>> EagerPages::Put(const Fd& images,
                                                    const std::vector<image::TaskMemory>& memory,
                                                    image::StoredPages& pages) {
  std::unique_ptr<EagerPages> eager(new EagerPages);
  eager->images_ = Fd(fcntl(images.get(), F_DUPFD_CLOEXEC, 3));
  if (!eager->images_) return std::unexpected(ErrnoError("dup"));
  for (const image::TaskMemory& task : memory) XMPI_RETURN_IF_ERROR(eager->PutTask(task, pages));
  return eager;
}

Result<> EagerPages::PutTask(const image::TaskMemory& task, image::StoredPages& pages) {
  const std::string name = PagemapName(static_cast<std::uint64_t>(task.pid));
  const std::optional<std::string> image = ReadImage(images_.get(), name.c_str());
  if (!image) return Fail(std::format("{} is missing in the image", name));
  XMPI_ASSIGN_OR_RETURN(const Pagemap before, DecodePagemap(*image, name.c_str()));
  Pagemap after{.pages_number = kFirstNumber + static_cast<std::uint32_t>(changed_.size()),
                .entries = {}};
  const std::string from = PagesName(before.pages_number), to = PagesName(after.pages_number);
  changed_.push_back({name, *image, to});
  Writer writer(
      Fd(openat(images_.get(), from.c_str(), O_RDONLY | O_CLOEXEC)),
      Fd(openat(images_.get(), to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)),
      &after);
  for (const PagemapEntry& entry : before.entries) {
    XMPI_RETURN_IF_ERROR(entry.flags == kPageLazy ? writer.Put(task.pid, entry, pages)
                                                  : writer.Keep(entry));
  }
  return WriteImage(images_.get(), name.c_str(), Encode(after));
}

EagerPages::~EagerPages() {
  for (const Changed& changed : changed_) {
    (void)WriteImage(images_.get(), changed.pagemap.c_str(), changed.before);
    unlinkat(images_.get(), changed.pages.c_str(), 0);
  }
}

}  // namespace xmpi::criu
