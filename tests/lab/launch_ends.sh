#!/bin/bash
# However a job ends, its exit code says so and within seconds nothing of it is left on any host.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
MISBEHAVE=$XMPI_BUILD/tests/programs/launch_misbehave

run() { node node5 xmpiexec "$@"; }
on_two() { run -n 4 -ppn 2 -hosts node1,node2 "$@"; }
all_clean() { expect_clean node1 node2; }
err_has() { grep -q -- "$1" "$TEST_DIR/err" || fail "stderr does not say '$1': $(cat "$TEST_DIR/err")"; }

step "exit codes"
expect_status 0 on_two "$MISBEHAVE" late 0
expect_status 5 on_two "$MISBEHAVE" late 5 2>"$TEST_DIR/err"
expect_status 7 on_two "$MISBEHAVE" exit 7 2>"$TEST_DIR/err"
err_has "rank 3"
err_has "node2"
expect_status 1 on_two "$MISBEHAVE" exit 0 2>"$TEST_DIR/err" # ending without MPI_Finalize is no success
expect_status 139 on_two "$MISBEHAVE" kill 11 2>"$TEST_DIR/err"
err_has "signal 11"
expect_status 137 on_two "$MISBEHAVE" kill 9 2>"$TEST_DIR/err"
expect_status 42 on_two "$MISBEHAVE" abort 42 2>"$TEST_DIR/err"
err_has "MPI_Abort"
expect_status 3 on_two sh -c 'exit $((PMI_RANK == 2 ? 3 : 0))' 2>"$TEST_DIR/err"
expect_status 127 on_two /no/such/program 2>"$TEST_DIR/err"
err_has /no/such/program
all_clean

# start ARGS...: a job that waits for ever, in the background; returns when all its ranks are there.
start() {
  : >"$TEST_DIR/out"
  on_two "$@" "$MISBEHAVE" wait >"$TEST_DIR/out" 2>"$TEST_DIR/err" &
  job=$!
  wait_for 30 grep -q "all are here" "$TEST_DIR/out"
}
# ended CODE: the job ends with it, soon.
ended() {
  local began=$SECONDS status=0
  wait $job || status=$?
  ((SECONDS - began <= 15)) || fail "the job took $((SECONDS - began)) s to end"
  expect_eq "$status" "$1" "exit code"
}

for signal in INT:130 TERM:143 HUP:129; do
  step "SIG${signal%:*} to the launcher"
  start
  node node5 pkill -"${signal%:*}" -x xmpiexec
  ended "${signal#*:}"
  all_clean
done

step "two SIGINT at once"
start
node node5 sh -c 'pkill -INT -x xmpiexec; pkill -INT -x xmpiexec'
ended 130
all_clean

step "kill -9 of the launcher"
start
node node5 pkill -9 -x xmpiexec
ended 137
all_clean
expect_eq "$(node node5 pgrep -c 'ssh$' || true)" 0 "remote shells left on the launcher's host"
expect_eq "$(node node5 xmpictl list)" "no job of yours runs on this host"
node node5 test ! -e /tmp/xmpi-0 || fail "control sockets of dead launchers are left"

step "kill -9 of a proxy"
start
node node2 pkill -9 -o xmpi-proxy
ended 1
err_has "slot 1 on node2"
all_clean

step "kill -9 of a rank"
start
node node2 sh -c 'kill -9 $(pgrep launch_misbehav | head -1)'
ended 137
err_has "node2"
all_clean

step "a host dies"
start
lab kill node2
ended 1
err_has "node2"
lab start node2
wait_for 20 node node5 ssh node2 true
all_clean

step "-timeout"
expect_status 124 on_two -timeout 3 "$MISBEHAVE" wait 2>"$TEST_DIR/err" >"$TEST_DIR/out"
err_has "timeout"
all_clean

step "the reader of our output goes away"
status=0
node node5 bash -c 'xmpiexec -n 2 -hosts node1,node2 yes | head -1 >/dev/null; exit ${PIPESTATUS[0]}' 2>"$TEST_DIR/err" || status=$?
expect_eq "$status" 141 "exit code"
expect_eq "$(cat "$TEST_DIR/err")" "" "words on stderr"
all_clean

step "output that cannot be written is no success"
expect_status 1 node node5 sh -c 'exec xmpiexec -n 1 -hosts node1 echo lost >/dev/full' 2>"$TEST_DIR/err"
err_has "No space left"
expect_status 1 node node5 sh -c 'exec xmpiexec -help >/dev/full' 2>"$TEST_DIR/err"
all_clean

step "nothing is left where the launcher ran"
expect_clean node5
