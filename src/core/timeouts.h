// The deadlines of a job's start, of each phase and of its end, in one place. `-timeouts
// NAME=SECONDS,...` changes them by these names; those of the links are in base/limits.h.
#pragma once

#include <chrono>
#include <string_view>

namespace xmpi::core {

// X(name, default in ms)
#define XMPI_PHASE_TIMEOUTS(X)                                      \
  /* All proxies connected and all ranks started. */                \
  X(start, 60'000)                                                  \
  /* One attempt: candidate up, preflight, image connection; */     \
  /* during the pre-copy: from one sign of progress to the next. */ \
  X(prepare, 30'000)                                                \
  /* Memory that is sent while the ranks run: then it is enough. */ \
  X(precopy, 60'000)                                                \
  /* Notice to the last arrival: the application's longest step. */ \
  X(quiesce, 120'000)                                               \
  /* The barrier among ranks that all have arrived. */              \
  X(check, 30'000)                                                  \
  /* Teardown of every session. */                                  \
  X(park, 60'000)                                                   \
  /* All ranks of a slot. */                                        \
  X(dump, 120'000)                                                  \
  /* What is left to send once the dump is done. */                 \
  X(transfer, 300'000)                                              \
  X(restore, 120'000)                                               \
  /* Every session open again. */                                   \
  X(reconnect, 120'000)                                             \
  /* Proxies end their ranks and leave. */                          \
  X(end, 6'000)

struct Timeouts {
#define XMPI_MEMBER(name, value) std::chrono::milliseconds name{value};
  XMPI_PHASE_TIMEOUTS(XMPI_MEMBER)
#undef XMPI_MEMBER

  // The member called `wanted`, or nullptr.
  std::chrono::milliseconds* Find(std::string_view wanted) {
#define XMPI_FIND(name, value) \
  if (wanted == #name) return &this->name;
    XMPI_PHASE_TIMEOUTS(XMPI_FIND)
#undef XMPI_FIND
    return nullptr;
  }
};

}  // namespace xmpi::core
