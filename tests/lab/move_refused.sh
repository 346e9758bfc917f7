#!/bin/bash
# Moves that cannot be: the operator hears why, with a non-zero exit code, and the job goes on where it is, to the
# right result.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$CHECKOUT/tests/lab/move_lib.sh"
trap 'lab heal node3; touch "$STOP"; wait || true; rm -rf "$TEST_DIR" "$STOP"' EXIT

step "a target that cannot be reached"
start 4 2 -pause 2000 -lines 1
lab cut node3
refused node3 node1 --to node3
lab heal node3
step "a node that is none"
refused nowhere node1 --to nowhere
step "after all that it moves"
move node1 node3
finish
expect_eq "$(field rebuilt)" 1 "rebuilds"
expect_lines 4
expect_same_result 4 2

step "a spare that cannot be reached: the next one serves"
lab cut node3
LAUNCH=(-spares "node3,node5")
start 4 2 -pause 2000 -lines 1
node $HEAD xmpictl evacuate $JOB node2 --json >"$TEST_DIR/move.json" || fail "$(cat "$TEST_DIR/move.json")"
expect_eq "$(jq -r .to "$TEST_DIR/move.json")" node5 "target"
lab heal node3
finish
LAUNCH=()

step "a rank that does not come to its safe point: it is named, with its calls"
LAUNCH=(-timeouts "quiesce=1")
start 4 2 -pause 2000 -lines 1 -slow 3000
refused "rank 3 (slot 1 on node2) has not reached call [0-9]* of XMPI_Quiesce (calls passed: [0-9]*)" node1 --to node3
finish
expect_lines 4
expect_same_result 4 2

step "a rank that calls the safe point more often than the others"
start 4 2 -pause 2000 -lines 1 -extra 3
refused "rank 0 (slot 0 on node1) has not reached call [0-9]* of XMPI_Quiesce (calls passed: [0-9]*)" node1 --to node3
finish
expect_lines 4
expect_same_result 4 2
LAUNCH=()

step "a rank with a request pending at its safe point"
start 4 2 -pause 2000 -lines 1 -pending 2
refused "rank 2.*pending" node1 --to node3
finish
expect_lines 4
expect_same_result 4 2

step "a rank that no dump can carry: found before anybody stops"
start 4 2 -pause 2000 -lines 1 -listen 1
refused "TCP socket listening on" node1 --to node3
wait_for 10 nothing_left_on node3
expect_eq "$(pids node1 witness | wc -l)" 2 "ranks on node1"
refused "must close it before XMPI_Quiesce" node1 --to node5
move node2 node3 # the slot without that rank can go
finish
expect_eq "$(field rebuilt)" 1 "rebuilds"
expect_lines 4
expect_same_result 4 2

step "a file of its node, which must not travel"
LAUNCH=(-no-carry-files)
start 4 2 -pause 2000 -lines 1 -open /root/only-here 0
refused "only-here" node1 --to node3
wait_for 10 nothing_left_on node3
finish
expect_lines 4
expect_same_result 4 2
node node1 rm -f /root/only-here
expect_clean node1 node2 node3 node5 $HEAD
