#!/bin/bash
# A move that breaks at a named place. Before handover, whatever fails, the job goes on where it is and gives the
# undisturbed result, or it ends at once with a message that names node and rank; nothing is left anywhere.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$CHECKOUT/tests/lab/move_lib.sh"

# start_with FAULT: the job, with every proxy armed.
start_with() {
  step "$1"
  start_env=(env "XMPI_FAULT=$1")
  start 4 2 -pause 2000 -lines 5
}
stays() {
  refused "$1" node1 --to node3
  wait_for 10 nothing_left_on node3
  finish
  expect_lines 4
  expect_same_result 4 2
}

for point in prepare.before prepare.after dump.before dump.after transfer.after restore.before restore.after; do
  start_with $point:error
  stays "fault point $point"
done

start_with restore.before:crash
stays node3
LAUNCH=(-timeouts "link_timeout=3,launcher_grace=1")
start_with restore.before:stall
refused node3 node1 --to node3
node node3 pkill -9 -x xmpi-proxy || true # it may never hear that it was given up
wait_for 10 nothing_left_on node3
finish
expect_lines 4
expect_same_result 4 2
LAUNCH=()

for point in dump.before transfer.before; do
  start_with $point:cut
  move node1 node3
  finish
  expect_eq "$(field rebuilt)" 1 "rebuilds"
  expect_lines 4
  expect_same_result 4 2
done

start_with dump.before:crash
node $HEAD xmpictl evacuate $JOB node1 --to node3 >"$TEST_DIR/refused" 2>&1 && fail "it says that the move went well"
wait "$job" && fail "the job says that all is well"
grep -q "slot 0 of node1 is lost in dump" "$TEST_DIR/err" || fail "it is not said who is lost: $(cat "$TEST_DIR/err")"
expect_clean node1 node2 node3 $HEAD
