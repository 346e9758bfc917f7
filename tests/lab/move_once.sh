#!/bin/bash
# A node is evacuated while its ranks compute. Seen from outside: they exist on the target, in a PID namespace of
# their own, and are gone from the source; the steps go on without a restart; no clock goes back; the result is the
# undisturbed one.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$CHECKOUT/tests/lab/move_lib.sh"

step "8 ranks on two nodes"
start 8 4 -pause 2000 -lines 1
expect_eq "$(pids node1 witness | wc -l)" 4 "ranks on node1"
expect_eq "$(pids node3 witness | wc -l)" 0 "ranks on node3"

step "node1 is evacuated"
move node1 node3
expect_eq "$(jq '.ranks | length' "$TEST_DIR/move.json")" 4 "moved ranks"
expect_eq "$(pids node1 witness | wc -l)" 0 "ranks left on node1"
expect_eq "$(pids node3 witness | wc -l)" 4 "ranks on node3"
wait_for 10 nothing_left_on node1
expect_eq "$(node $HEAD xmpictl status --json | jq -c .spares)" "[]" "spares left"
own=$(pid_namespace node3 1)
for pid in $(pids node3 witness); do
  [[ $(pid_namespace node3 "$pid") != "$own" ]] || fail "PID $pid is in the node's own PID namespace"
done

step "its steps go on"
before=$(lines_of 0)
wait_for 30 more_lines_than $((before + 20))
finish
expect_eq "$(field rebuilt)" 1 "rebuilds"
for rank in 0 1 2 3; do
  expect_eq "$(awk -v r=$rank '$1 == r && $2 == "host" {printf "%s ", $3}' "$TEST_DIR/out")" "node1 node3 " "hosts of rank $rank"
done
expect_lines 8
expect_same_result 8 4
expect_clean node1 node2 node3 $HEAD
