// ProcessMemory: the pages of processes of this node, running or stopped, read through a procfs of
// their PID namespace; and which pages there are to read. It owns a descriptor per process that was
// read from, which pins that process's memory: one that ends is gone for good, even when its PID is
// given to another. It stops nobody and writes nothing.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "image/pages.h"

namespace xmpi::image {

class ProcessMemory : public PageSource {
 public:
  // `proc_fd` is a procfs's root; it stays the caller's and must outlive this.
  explicit ProcessMemory(int proc_fd) : proc_fd_(proc_fd) {}

  Result<std::size_t> Read(pid_t pid, std::uint64_t address, std::span<std::byte> out) override;

 private:
  Result<int> Open(pid_t pid);

  int proc_fd_;
  std::mutex mutex_;
  std::map<pid_t, Fd> memories_;
};

// How the kernel is asked which pages there are: PAGEMAP_SCAN (Linux 6.7), or /proc/PID/pagemap.
enum class ScanBy { kBest, kPagemap };

// The pages of its own that a process has, present or swapped out, in mappings that are private,
// readable and writable: what a dump would contain, as far as it can be told while the process
// runs. By kPagemap pages that were only ever read, and are zero, are among them.
Result<std::vector<PageRun>> Scan(int proc_fd, pid_t pid, ScanBy by = ScanBy::kBest);

}  // namespace xmpi::image
