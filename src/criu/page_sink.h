// PageSink: the page server of one dump. CRIU, told to send pages to a socket, sends them here: of
// memory that is restored lazily only the runs are kept, since the stopped original still has the
// bytes; everything else (stacks, shared mappings) becomes pages-N.img. So what a dump leaves in
// the directory is an image as CRIU's own lazy dump makes it, and hardly larger than what CRIU
// knows of the process. Owns the socket's ends; knows nothing of CRIU's other images.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "image/pages.h"

namespace xmpi::criu {

class PageSink {
 public:
  static Result<std::unique_ptr<PageSink>> Make();
  ~PageSink();

  // CRIU's end, to be given to the criu process.
  int criu_end() const { return theirs_.get(); }

  // Once criu has its end: receives in a thread of its own and writes into `directory`.
  void Begin(int directory);
  // Once criu has answered, or is dead and will not: what it sent, or why that is not all. Ends the
  // thread in any case.
  Result<std::vector<image::TaskMemory>> Finish();

 private:
  PageSink() = default;

  Fd ours_, theirs_;
  Result<std::vector<image::TaskMemory>> received_;
  std::jthread thread_;
};

}  // namespace xmpi::criu
