// What a rank may send over its PMI socket, and what get_maxes tells it. One place, each with its
// reason. A rank is the user's program: nothing it sends may cost us more than these bounds.
#pragma once

#include <cstddef>
#include <cstdint>

namespace xmpi::pmi {

// The three answers of get_maxes. MPICH's clients size their buffers by them and some break on
// other values, so they are the ones Hydra gives. A stored key or value is one byte shorter, as the
// client counts the terminating zero.
inline constexpr std::size_t kMaxKvsNameBytes = 256;
inline constexpr std::size_t kMaxKeyBytes = 64;
inline constexpr std::size_t kMaxValueBytes = 1024;

// One line. The longest regular one is a put (name, key, value: under 1.5 KiB); MPICH's own line
// buffer is 4 KiB; an argument line of a spawn or an abort message may be longer.
inline constexpr std::size_t kMaxLineBytes = 8192;

// One multi-line command (a spawn with its arguments and infos), all lines together.
inline constexpr std::size_t kMaxCommandBytes = 65536;

// Puts of one rank in one generation, new keys and overwrites alike. MPICH makes some ten; at
// the largest key and value this bounds a rank to 18 MiB.
inline constexpr std::uint32_t kMaxPutsPerRank = 16384;

// Generations a slot holds at once. A rank leaves a generation only after fences in which all took
// part, so a correct job needs two; a rank that runs further ahead of its neighbours is broken.
inline constexpr std::size_t kMaxLiveGenerations = 8;

// Name service: MPI_MAX_PORT_NAME is 256, and MPICH lets a service name be as long as a line. The
// count bounds the launcher's memory when a program publishes and never unpublishes.
inline constexpr std::size_t kMaxServiceBytes = 256;
inline constexpr std::size_t kMaxPortBytes = 256;
inline constexpr std::size_t kMaxPublishedNames = 4096;

// Of a malformed line, what an error message quotes.
inline constexpr std::size_t kMaxQuotedBytes = 160;

}  // namespace xmpi::pmi
