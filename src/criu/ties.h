// The pipes and sockets between a rank and its proxy: finding them in the rank, and carrying the
// bytes that lie unread in a pipe over to the pipe that takes its place. Reads /proc and pipes;
// consumes nothing.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "criu/checkpointer.h"
#include "criu/process_tree.h"
#include "image/manifest.h"

namespace xmpi::criu {

// Those of `ties` that some process of the tree still has open, each inode once.
std::vector<image::ManifestTie> FindTies(const std::vector<OpenFd>& fds, std::span<const Tie> ties);

// Fills `unread` of each pipe that the tree reads. Nobody may write to them meanwhile.
Result<> CaptureUnread(int proc_fd, const std::vector<OpenFd>& fds,
                       std::vector<image::ManifestTie>* ties);

// What is unread in the pipe whose read end is `fd`, without taking it out.
Result<std::string> PeekPipe(int fd);
// Puts bytes into the pipe whose read end is `fd`, making it larger when it must be.
Result<> FillPipe(int fd, std::string_view bytes);

}  // namespace xmpi::criu
