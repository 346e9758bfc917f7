// EagerPages: where a rank cannot be given its memory while it runs, what a lazy image lacks is put
// into it for the time of one restore. The image is as before when this is gone, so that it can be
// sent on. Until then the memory is there twice; nothing is taken from the store.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "image/pages.h"

namespace xmpi::criu {

class EagerPages {
 public:
  static Result<std::unique_ptr<EagerPages>> Put(const Fd& images,
                                                 const std::vector<image::TaskMemory>& memory,
                                                 image::StoredPages& pages);
  ~EagerPages();

 private:
  struct Changed {
    std::string pagemap;  // the name
    std::string before;   // the content
    std::string pages;    // the file that was made
  };

  EagerPages() = default;
  Result<> PutTask(const image::TaskMemory& task, image::StoredPages& pages);

  Fd images_;
  std::vector<Changed> changed_;
};

}  // namespace xmpi::criu
