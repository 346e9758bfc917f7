// What stands in the way of a teardown at this rank: what its books and its bound variables say
// when it arrives, and what messages it finds after the barrier. Words for a person, naming the
// maker and the remedy; it changes nothing.
#pragma once

#include <string>

namespace xmpi::rank {

// Empty when this rank may stop here.
std::string Obstacle();

// A message that was sent and not received, on any communicator that we know of; empty when none
// is seen. For after a barrier. It cannot see a message that is still on the wire then.
std::string UnmatchedMessage();

// Why the wrappers are not the program's MPI functions, so that the books stay empty; else empty.
std::string WhyBooksAreBlind();

}  // namespace xmpi::rank
