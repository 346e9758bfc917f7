// The node's hardware as hwloc describes it, in a file that lives in memory only. Every rank of an
// MPI program wants it when it starts; with one scan for all of them 64 ranks on 2 cores start half
// a second earlier. The scan is made when the first rank speaks PMI: other programs need none.
#pragma once

#include "base/error.h"
#include "base/fd.h"

namespace xmpi::proxy {

class Topology {
 public:
  // Empty for now. Close-on-exec.
  static Result<Topology> Open();

  const Fd& file() const { return file_; }
  // Scans the node and writes the file, once; a failure is logged and leaves the file empty.
  void Fill();

 private:
  explicit Topology(Fd file) : file_(std::move(file)) {}
  Fd file_;
  bool filled_ = false;
};

}  // namespace xmpi::proxy
