// xmpi-proxy --facts: what this node is to jobs that move, on standard output, for xmpictl doctor.
// Makes a slot and asks CRIU as a job's proxy does, so that what is found is what a job would find.
#pragma once

namespace xmpi::proxy {

// Prints a wire::NodeFacts in hexadecimal and a newline; gives the exit code.
int PrintFacts();

}  // namespace xmpi::proxy
