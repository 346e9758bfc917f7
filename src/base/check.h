// XMPI_CHECK: an invariant of our own code, always on. Never used on what a peer or a user sends.
#pragma once

#include <cstdio>
#include <cstdlib>

#define XMPI_CHECK(condition)                                                                \
  do {                                                                                       \
    if (!(condition)) [[unlikely]] {                                                         \
      std::fprintf(stderr, "%s:%d: broken invariant: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                          \
    }                                                                                        \
  } while (false)
