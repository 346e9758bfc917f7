#!/bin/bash
# A job of a user who is not root: what doctor says until criu has its capabilities, what is lost without namespaces
# and said once, a move there and back with the same bits, and process ids that are taken on the target: refused in
# prepare; taken later, given back after the restore has failed.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$CHECKOUT/tests/lab/move_lib.sh"

NODES="node1 node2 node3 $HEAD"
RELEASE=$XMPI_BUILD/tests/plain.release
cleanup() {
  touch "$STOP" "$RELEASE"
  wait || true
  fresh_lab
  rm -rf "$TEST_DIR" "$STOP" "$RELEASE"
}
trap cleanup EXIT

operator=(runuser -u ada -- env HOME=/home/ada USER=ada XMPI_LOG_DIR=/home/ada)

# begin [NAME=VALUE]: her job of four ranks in the background; returns once it computes. Its ranks' clocks are their
# nodes', so that witness would end itself.
begin() {
  rm -f "$STOP"
  : >"$TEST_DIR/out"
  node $HEAD "${operator[@]}" "$@" xmpiexec -job $JOB -n 4 -ppn 2 -hosts node1,node2 \
    ring -until "$STOP" -pause 2000 >"$TEST_DIR/out" 2>"$TEST_DIR/err" &
  job=$!
  wait_for 60 grep -qs '^step' "$TEST_DIR/out"
}

# taken PID: node3 has a process of this number, until let_go_of.
taken() {
  : >"$TEST_DIR/taken"
  # shellcheck disable=SC2016 # expanded on the node
  node node3 bash -c 'for ((i = 0; i < 100; ++i)); do
    echo $(($0 - 1)) >/proc/sys/kernel/ns_last_pid
    sleep 1000 &
    [[ $! != "$0" ]] || break
    kill $!
  done; echo $!; wait' "$1" >"$TEST_DIR/taken" 2>/dev/null &
  taker=$!
  wait_for 30 grep -q . "$TEST_DIR/taken"
  expect_eq "$(cat "$TEST_DIR/taken")" "$1" "the PID of node3's process"
}
let_go_of() {
  node node3 kill "$1"
  wait "$taker" || true
}

step "ada has an account on each node, and nothing else"
fresh_lab
for name in $NODES; do
  node "$name" bash -ec 'useradd --uid 1500 --create-home --password "*" ada
    cp -r /root/.ssh /home/ada/ && chown -R ada: /home/ada'
done
# Nodes of a lab count their processes from 1: real ones differ.
node node1 sh -c 'echo 20000 >/proc/sys/kernel/ns_last_pid'
node node3 sh -c 'echo 40000 >/proc/sys/kernel/ns_last_pid'

step "doctor names the command that is missing"
expect_status 1 node $HEAD "${operator[@]}" xmpictl doctor node1 node2 node3 >"$TEST_DIR/doctor"
# shellcheck disable=SC2016 # as it is printed
remedy=$(grep -o "\`setcap [^\`]*\`" "$TEST_DIR/doctor" | sort -u | tr -d "\`" || true)
expect_eq "$remedy" "setcap cap_checkpoint_restore,cap_setpcap+ep /usr/sbin/criu" "the remedy; $(cat "$TEST_DIR/doctor")"

step "until then a job runs, and stays"
begin
refuses() {
  expect_status 1 node $HEAD "${operator[@]}" xmpictl evacuate $JOB node1 --to node3 >"$TEST_DIR/refused" 2>&1
  local word
  for word; do grep -q -- "$word" "$TEST_DIR/refused" || fail "'$word' is not in: $(cat "$TEST_DIR/refused")"; done
  expect_eq "$(pids node1 ring | wc -l)" 2 "ranks on node1"
}
refuses "$remedy"

step "with it, doctor is content"
for name in $NODES; do
  # shellcheck disable=SC2086 # a command with its words
  node "$name" $remedy
done
node $HEAD "${operator[@]}" xmpictl doctor node1 node2 node3 >"$TEST_DIR/doctor" || fail "$(cat "$TEST_DIR/doctor")"
grep -q "warning: node3 gives a job no namespaces: no PID and mount namespaces" "$TEST_DIR/doctor" || fail "$(cat "$TEST_DIR/doctor")"

step "a PID of a rank is taken on node3"
here=$(pids node1 ring | paste -sd ' ')
taken "${here%% *}"
refuses "on node3 PID ${here%% *} is that of sleep" "choose another target"
let_go_of "${here%% *}"

step "it is free again: there and back, under the same PIDs, as the same user"
move node1 node3
expect_eq "$(pids node3 ring | paste -sd ' ')" "$here" "PIDs on node3"
for pid in $here; do
  expect_eq "$(pid_namespace node3 "$pid")" "$(pid_namespace node3 1)" "the PID namespace of $pid"
  expect_eq "$(node node3 stat -c %U "/proc/$pid")" ada "the user of $pid"
done
wait_for 10 nothing_left_on node1
move node3 node1
expect_eq "$(pids node1 ring | paste -sd ' ')" "$here" "PIDs on node1"

step "the result is that of an undisturbed run; what is lost was said once"
touch "$STOP"
wait "$job" || fail "exit code $?: $(tail -5 "$TEST_DIR/err")"
moved=$(tail -1 "$TEST_DIR/out")
[[ $moved == *"rebuilt 2 "* ]] || fail "expected 2 rebuilds: $moved"
steps=$(awk '/^steps/ {print $2}' "$TEST_DIR/out")
plain=$(node $HEAD xmpiexec -n 4 -ppn 2 -hosts node1,node2 ring -steps "$steps" | tail -1)
expect_eq "${moved##*checksum }" "${plain##*checksum }" "the checksum after $steps steps"
expect_eq "$(grep -c "no PID and mount namespaces" "$TEST_DIR/err")" 1 "warnings of PIDs: $(cat "$TEST_DIR/err")"
expect_eq "$(grep -c "CLOCK_MONOTONIC and MPI_Wtime may jump" "$TEST_DIR/err")" 1 "warnings of clocks: $(cat "$TEST_DIR/err")"

step "a PID is taken between the preflight and the restore: the job stays where it is"
rm -f "$RELEASE"
begin "XMPI_FAULT=node3@restore.before:hold=$RELEASE"
here=$(pids node1 ring | paste -sd ' ')
timeout 120 "$CHECKOUT/dev" lab exec $HEAD "${operator[@]}" xmpictl evacuate $JOB node1 --to node3 >"$TEST_DIR/refused" 2>&1 &
order=$!
wait_for 60 grep -q "fault.hit point=restore.before" "$TEST_DIR/err"
taken "${here%% *}"
touch "$RELEASE"
expect_status 1 wait "$order"
grep -q "PID ${here%% *} is that of sleep" "$TEST_DIR/refused" || fail "$(cat "$TEST_DIR/refused")"
let_go_of "${here%% *}"
expect_eq "$(pids node1 ring | paste -sd ' ')" "$here" "PIDs on node1"
expect_eq "$(pids node3 ring | paste -sd ' ')" "" "PIDs on node3"
move node1 node3
touch "$STOP"
wait "$job" || fail "exit code $?: $(tail -5 "$TEST_DIR/err")"
grep -q "rebuilt 2 " "$TEST_DIR/out" || fail "$(tail -1 "$TEST_DIR/out")"

step "a proxy that is killed leaves nothing, no image either"
begin XMPI_FAULT=node3@transfer.after:crash
expect_status 1 node $HEAD "${operator[@]}" xmpictl evacuate $JOB node1 --to node3 >"$TEST_DIR/refused" 2>&1
wait_for 10 nothing_left_on node3
node node1 pkill -9 -x xmpi-proxy
status=0
wait "$job" || status=$?
((status != 0)) || fail "the job ended well without its proxy"
# shellcheck disable=SC2086 # a list of names
expect_clean $NODES
