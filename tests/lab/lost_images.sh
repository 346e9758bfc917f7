#!/bin/bash
# Two things fail in one migration. Images that are held are as good as the ranks themselves: they are restored again,
# or on another spare; only when nobody holds any does the job end, and says so.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$CHECKOUT/tests/lab/move_lib.sh"
source "$CHECKOUT/tests/lab/lost_lib.sh"

# hold_images FAULT: the target holds the images, and its proxy stands still; the source's proxy has died.
hold_images() {
  begin "node3@transfer.after:hold=$RELEASE$1"
  evacuate node1
  wait_for 60 reached transfer.after
  node node1 pkill -9 -x xmpi-proxy
  wait_for 30 originals_lost
}
originals_lost() { grep -q "originals.lost" "$EVENTS"; }

step "the reference"
make_reference 3000

step "source lost, and the first restore fails: it is done again"
hold_images ",node3@restore.after:error-once"
touch "$RELEASE"
moved_to node3
expect_clean node1 node2 node3 node5 $HEAD

step "source lost, and no restore succeeds on the target: its images go to the next spare"
hold_images ",node3@restore.before:error"
touch "$RELEASE"
moved_to node5
expect_clean node1 node2 node3 node5 $HEAD

step "source lost: too late to cancel"
hold_images ""
node $HEAD xmpictl cancel $JOB >"$TEST_DIR/cancel" 2>&1 && fail "it is cancelled"
grep -q "only the images" "$TEST_DIR/cancel" || fail "$(cat "$TEST_DIR/cancel")"
touch "$RELEASE"
moved_to node3
expect_clean node1 node2 node3 node5 $HEAD

step "source and target lost: nothing is left to restore from"
hold_images ""
node node3 pkill -9 -x xmpi-proxy
touch "$RELEASE"
ends "there is no image to restore from"
grep -q "and with it rank 0, 1" "$TEST_DIR/err" || fail "the ranks are not named: $(cat "$TEST_DIR/err")"
expect_clean node1 node2 node3 node5 $HEAD

step "a target that took standard input is lost: the originals read on without a gap"
seq 0 999999 >"$TEST_DIR/in"
rm -f "$RELEASE"
start_env=(env "XMPI_FAULT=node3@reconnect.before:crash")
LAUNCH=(-spares node3 -timeouts "$PATIENCE")
INPUT=$TEST_DIR/in start 4 2 -pause 10000 -lines 1 -read 20
evacuate node1
stays "lost before all had reconnected"
expect_eq "$(field read)" $(($(field steps) * 20)) "lines of standard input"
expect_clean node1 node2 node3 node5 $HEAD
