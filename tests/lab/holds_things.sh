#!/bin/bash
# What a rank may hold besides files: threads, children, a zombie, locked and shared memory, timers, pending signals,
# descriptors without a name, terminals; and streams that it has put something else in the place of.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$CHECKOUT/tests/lab/move_lib.sh"
source "$CHECKOUT/tests/lab/holds_lib.sh"

forget() { for name in node1 node2 node3 node5; do node $name sh -c 'rm -f /root/stderr-*'; done; }
forget

step "all of it at once"
things=(threads child forked zombie memory pending nameless pty)
hold 4 2 $(printf -- '-hold %s ' "${things[@]}")
move node1 node3
move node2 node5
move node3 node1
holds 4 3 "${things[@]}"
let_go 4 3

step "a child that has MPI's connections open: found before anybody stops"
hold 2 1 -hold child=careless
stays "holds MPI's TCP .*, inherited from its parent (rank 0, PID [0-9]*, descriptor" node1 node3
let_go 2 0

step "streams: closed, a terminal, a file, nothing"
hold 4 2 -hold stream=1=closed -hold stream=0=pty
move node1 node3
holds 4 1 stream
let_go 4 1
hold 4 2 -hold stream=0=/dev/null -hold stream=1=/dev/null -hold "stream=2=/root/stderr-%d"
move node1 node3
let_go_quietly 1
forget
expect_clean node1 node2 node3 node5 $HEAD
