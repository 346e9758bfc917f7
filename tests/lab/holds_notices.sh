#!/bin/bash
# A notice at any moment of a rank's life, and in any call: before XMPI_Init, in it, in XMPI_Finalize, after; in a
# sleep or a computation; twice; for two nodes at once. Nobody dies of it.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$CHECKOUT/tests/lab/move_lib.sh"
source "$CHECKOUT/tests/lab/holds_lib.sh"

FIRST=$XMPI_BUILD/tests/holding.first
rm -f "$FIRST"
evacuate() { node $HEAD xmpictl evacuate $JOB "$@"; }

step "before XMPI_Init"
rm -f "$STOP"
: >"$TEST_DIR/out"
node $HEAD xmpiexec -job $JOB -n 4 -ppn 2 -hosts node1,node2 holder -until "$STOP" -before "$FIRST" -pause 3000 \
  >"$TEST_DIR/out" 2>"$TEST_DIR/err" &
job=$!
wait_for 60 grep -qs '^starts' "$TEST_DIR/out"
expect_status 1 evacuate node1 --to node3 >"$TEST_DIR/refused" 2>&1
step "in it"
touch "$FIRST"
tries=0
until evacuate node1 --to node3 >"$TEST_DIR/refused" 2>&1; do
  ((++tries < 200)) || fail "it never moves: $(tail -3 "$TEST_DIR/refused")"
  kill -0 "$job" || fail "the job is gone: $(tail -3 "$TEST_DIR/err")"
done
let_go 4 1
rm -f "$FIRST"

step "during XMPI_Finalize, again and again until the job is over, and after it"
for round in 1 2 3; do
  hold 4 2 -after "$FIRST"
  touch "$STOP"
  for _ in 1 2 3 4 5; do evacuate node1 --to node3 >/dev/null 2>&1 || true; done
  wait_for 30 grep -qs "3 ended well" "$TEST_DIR/out"
  expect_status 1 evacuate node2 --to node3 >/dev/null 2>&1
  touch "$FIRST"
  wait "$job" || fail "round $round: exit code $?: $(tail -3 "$TEST_DIR/err")"
  expect_eq "$(grep -c 'ended well' "$TEST_DIR/out")" 4 "ranks that ended well"
  rm -f "$FIRST"
done

for call in nanosleep poll read select wait compute; do
  step "in $call"
  hold 2 1 -in $call -pause 300000
  move node1 node3
  let_go 2 1
done

step "each at its own speed"
hold 4 2 -uneven -pause 1000 -hold ids
move node1 node3
move node2 node1
let_go 4 2

step "twice, and for two nodes at once"
hold 4 2 -hold ids
evacuate node1 --to node3 >"$TEST_DIR/first" 2>&1 &
one=$!
evacuate node1 --to node3 >"$TEST_DIR/second" 2>&1 &
two=$!
evacuate node2 --to node5 >"$TEST_DIR/third" 2>&1 &
three=$!
wait $one || wait $two || fail "neither worked: $(cat "$TEST_DIR/first" "$TEST_DIR/second")"
wait $two || true
wait $three || evacuate node2 --to node5 >"$TEST_DIR/third" 2>&1 || fail "node2: $(cat "$TEST_DIR/third")"
expect_eq "$(pids node1 holder | wc -l) $(pids node2 holder | wc -l)" "0 0" "ranks on node1 and node2"
expect_eq "$(pids node3 holder | wc -l) $(pids node5 holder | wc -l)" "2 2" "ranks on node3 and node5"
touch "$STOP"
wait "$job" || fail "exit code $?: $(tail -3 "$TEST_DIR/err")"

step "one that does not come to the safe point"
LAUNCH=(-timeouts "quiesce=1")
hold 2 1 -in compute -pause 20000000
stays "rank 0" node1 node3
node $HEAD pkill -x xmpiexec
wait "$job" && fail "it says that all is well"
expect_clean node1 node2 node3 node5 $HEAD
