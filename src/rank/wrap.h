// Turns a line of request_calls.h or object_calls.h into the definition of that MPI function:
// XMPI_WRAP(Isend, const void*, ...) declares the parameters a1, a2, ... and calls Noted with the
// matching PMPI function. For the wrap_*.cc files only.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstring>

#include "rank/books.h"

#define XMPI_EXPORT extern "C" __attribute__((visibility("default")))

#define XMPI_P1(a) a a1
#define XMPI_P2(a, b) XMPI_P1(a), b a2
#define XMPI_P3(a, b, c) XMPI_P2(a, b), c a3
#define XMPI_P4(a, b, c, d) XMPI_P3(a, b, c), d a4
#define XMPI_P5(a, b, c, d, e) XMPI_P4(a, b, c, d), e a5
#define XMPI_P6(a, b, c, d, e, f) XMPI_P5(a, b, c, d, e), f a6
#define XMPI_P7(a, b, c, d, e, f, g) XMPI_P6(a, b, c, d, e, f), g a7
#define XMPI_P8(a, b, c, d, e, f, g, h) XMPI_P7(a, b, c, d, e, f, g), h a8
#define XMPI_P9(a, b, c, d, e, f, g, h, i) XMPI_P8(a, b, c, d, e, f, g, h), i a9
#define XMPI_P10(a, b, c, d, e, f, g, h, i, j) XMPI_P9(a, b, c, d, e, f, g, h, i), j a10
#define XMPI_P11(a, b, c, d, e, f, g, h, i, j, k) XMPI_P10(a, b, c, d, e, f, g, h, i, j), k a11
#define XMPI_P12(a, b, c, d, e, f, g, h, i, j, k, l) \
  XMPI_P11(a, b, c, d, e, f, g, h, i, j, k), l a12
#define XMPI_P13(a, b, c, d, e, f, g, h, i, j, k, l, m) \
  XMPI_P12(a, b, c, d, e, f, g, h, i, j, k, l), m a13

#define XMPI_A1 a1
#define XMPI_A2 XMPI_A1, a2
#define XMPI_A3 XMPI_A2, a3
#define XMPI_A4 XMPI_A3, a4
#define XMPI_A5 XMPI_A4, a5
#define XMPI_A6 XMPI_A5, a6
#define XMPI_A7 XMPI_A6, a7
#define XMPI_A8 XMPI_A7, a8
#define XMPI_A9 XMPI_A8, a9
#define XMPI_A10 XMPI_A9, a10
#define XMPI_A11 XMPI_A10, a11
#define XMPI_A12 XMPI_A11, a12
#define XMPI_A13 XMPI_A12, a13

#define XMPI_COUNT_INNER(a, b, c, d, e, f, g, h, i, j, k, l, m, n, ...) n
#define XMPI_COUNT(...) XMPI_COUNT_INNER(__VA_ARGS__, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1)
#define XMPI_PASTE_INNER(a, b) a##b
#define XMPI_PASTE(a, b) XMPI_PASTE_INNER(a, b)
#define XMPI_PARAMETERS(...) XMPI_PASTE(XMPI_P, XMPI_COUNT(__VA_ARGS__))(__VA_ARGS__)
#define XMPI_ARGUMENTS(...) XMPI_PASTE(XMPI_A, XMPI_COUNT(__VA_ARGS__))

#define XMPI_WRAP(name, ...)                                              \
  XMPI_EXPORT int MPI_##name(XMPI_PARAMETERS(__VA_ARGS__)) {              \
    return Noted("MPI_" #name, PMPI_##name, XMPI_ARGUMENTS(__VA_ARGS__)); \
  }

namespace xmpi::rank {

template <class First, class... Rest>
auto LastOf(First first, Rest... rest) {
  if constexpr (sizeof...(rest) == 0)
    return first;
  else
    return LastOf(rest...);
}

}  // namespace xmpi::rank
