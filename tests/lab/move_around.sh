#!/bin/bash
# One slot moves to a spare, on to another, and back to where it began; then both slots sit on one node for a while.
# Output is complete and in order through all of it, standard input too, though its pipe is never empty.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$CHECKOUT/tests/lab/move_lib.sh"

step "a job that writes and reads all the time"
seq 0 999999 >"$TEST_DIR/in"
INPUT=$TEST_DIR/in start 4 2 -pause 2000 -lines 20 -read 20
for hop in "node1 node3" "node3 node5" "node5 node1" "node1 node2" "node2 node3"; do
  step "from ${hop% *} to ${hop#* }"
  # The fourth puts two slots with the same PIDs on one node, the fifth takes both away.
  # shellcheck disable=SC2086 # two words
  move $hop
  before=$(lines_of 0)
  wait_for 30 more_lines_than $((before + 200))
done
finish
expect_eq "$(field rebuilt)" 5 "rebuilds"
expect_lines 4
expect_eq "$(field read)" $(($(field steps) * 20)) "lines of standard input"
expect_same_result 4 2
expect_clean node1 node2 node3 node5 $HEAD
