#!/bin/bash
# However a proxy ends, or loses its launcher, nothing of its slot is left on its node, and the job ends at once.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$CHECKOUT/tests/lab/move_lib.sh"
trap 'lab heal node1; touch "$STOP"; wait || true; rm -rf "$TEST_DIR" "$STOP"' EXIT

# ended SECONDS: the job has ended, badly, within so long; stderr names node1.
ended() {
  local began=$SECONDS status=0
  wait "$job" || status=$?
  ((status != 0)) || fail "the job says that all is well"
  ((SECONDS - began <= $1)) || fail "the job took $((SECONDS - began)) s to end"
  grep -q node1 "$TEST_DIR/err" || fail "stderr does not name node1: $(cat "$TEST_DIR/err")"
}

for signal in KILL TERM HUP; do
  step "SIG$signal to a proxy"
  start 4 2 -pause 2000 -lines 1
  node node1 pkill -$signal -x xmpi-proxy
  ended 10
  expect_clean node1 node2 $HEAD
done

step "kill -9 of a proxy while MPI has a name in /dev/shm"
for pause in 0.00 0.02 0.04 0.06 0.08; do
  node $HEAD xmpiexec -n 8 -ppn 4 -hosts node1,node2 witness -steps 1 >"$TEST_DIR/out" 2>"$TEST_DIR/err" &
  job=$!
  wait_for 20 node node1 pgrep -x witness >"$TEST_DIR/pids"
  node node1 sh -c "sleep $pause; pkill -9 -x xmpi-proxy" || true
  wait "$job" || true
  expect_clean node1 node2
done

step "kill -9 of a candidate in the middle of a move"
start 4 2 -slow 2000 -lines 1
node $HEAD xmpictl evacuate $JOB node1 --to node3 >"$TEST_DIR/refused" 2>&1 &
evacuate=$!
wait_for 20 node node3 pgrep -x xmpi-proxy >"$TEST_DIR/pids"
wait_for 20 grep -q quiesce "$TEST_DIR/refused"
node node3 pkill -9 -x xmpi-proxy
expect_status 1 wait "$evacuate"
grep -q node3 "$TEST_DIR/refused" || fail "it does not name node3: $(cat "$TEST_DIR/refused")"
before=$(lines_of 0)
wait_for 30 more_lines_than "$before"
finish
expect_lines 4
expect_same_result 4 2

step "a short cut of the network is survived"
start 4 2 -pause 2000 -lines 1
lab drop node1
sleep 4 # the fault itself, shorter than link_timeout
lab heal node1
before=$(lines_of 0)
wait_for 30 more_lines_than "$before"
finish
expect_lines 4

step "a long one is not"
start 4 2 -pause 2000 -lines 1
lab drop node1
ended 30
lab heal node1
expect_clean node1 node2 $HEAD
