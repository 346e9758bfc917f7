#!/bin/bash
# What the launcher's own streams are: a pipe, a file, a terminal, /dev/null, closed. Every byte before, during and
# after a move comes once and in order.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$CHECKOUT/tests/lab/move_lib.sh"

RUN="xmpiexec -job $JOB -n 4 -ppn 2 -hosts node1,node2 witness -until $STOP -pause 2000 -lines 10"
# job_runs: all its ranks are past XMPI_Init, as can be seen though its output may go nowhere.
job_runs() {
  node $HEAD xmpictl status $JOB --json 2>/dev/null |
    jq -e '.stage == "running" and all(.slots[].ranks[]; .hello)' >/dev/null 2>&1
}
# through COMMAND: the job as COMMAND starts it, moved once, ended.
through() {
  local status=0
  rm -f "$STOP"
  node $HEAD bash -c "$1" >"$TEST_DIR/out" 2>"$TEST_DIR/err" </dev/null &
  job=$!
  wait_for 60 job_runs
  move node1 node3
  sleep_until_steps
  touch "$STOP"
  wait "$job" || status=$?
  expect_eq "$status" 0 "exit code; $(tail -3 "$TEST_DIR/err")"
}
# The job goes on for some steps after the move: nothing but its own output tells, so by rounds of status.
sleep_until_steps() { for _ in 1 2 3 4 5; do job_runs || fail "it does not run"; done; }

mkdir -p "$XMPI_BUILD/tests"
log=$XMPI_BUILD/tests/streams
step "pipes"
through "$RUN 2> >(cat >$log.err) | cat >$log.out"
cp "$log.out" "$TEST_DIR/out" && cp "$log.err" "$TEST_DIR/err"
expect_lines 4
step "a terminal"
through "script -qefc '$RUN' $log.tty >/dev/null"
sed 's/\r$//' "$log.tty" | grep ' out ' >"$TEST_DIR/out"
sed 's/\r$//' "$log.tty" | grep ' err ' >"$TEST_DIR/err"
expect_lines 4
step "/dev/null"
through "$RUN >/dev/null 2>/dev/null </dev/null"
step "closed, all three"
through "$RUN >&- 2>&- <&-"
step "a file, and input from a pipe that stays open"
through "sleep 1000 | { $RUN; pkill -x sleep; }"
expect_lines 4
rm -f "$log".*
expect_clean node1 node2 node3 $HEAD
