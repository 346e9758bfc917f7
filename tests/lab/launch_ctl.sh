#!/bin/bash
# What an operator can ask: which jobs run, where their ranks are; and what is refused, with the reason.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
MISBEHAVE=$XMPI_BUILD/tests/programs/launch_misbehave

ctl() { node node5 xmpictl "$@"; }
# start NAME: a job of plain MPI that waits for ever.
start() {
  node node5 xmpiexec -job "$1" -n 4 -ppn 2 -hosts node1,node2 -spares node3 "$MISBEHAVE" wait >"$TEST_DIR/$1" 2>&1 &
  wait_for 30 grep -q "all are here" "$TEST_DIR/$1"
}
# refused CODE WORDS ARGS...: xmpictl ARGS fails with CODE and says WORDS.
refused() {
  local code=$1 words=$2
  shift 2
  expect_status "$code" node node5 xmpictl "$@" 2>"$TEST_DIR/err" >"$TEST_DIR/out"
  grep -q -- "$words" "$TEST_DIR/err" || fail "xmpictl $*: '$words' is not in: $(cat "$TEST_DIR/err")"
}

step "no job"
expect_eq "$(ctl list)" "no job of yours runs on this host"
expect_eq "$(ctl list --json)" "[]"
refused 1 "no job of yours" status
refused 1 "xmpictl list" status nobody

step "words that are wrong"
ctl help | grep -q evacuate || fail "xmpictl help does not tell the commands: $(ctl help)"
refused 2 "there is no command 'fly'" fly
refused 2 "xmpictl help" ''
refused 2 "NODE" evacuate
refused 2 "the name of a node is empty" evacuate first node1 --to ''
expect_status 1 node node5 sh -c 'exec xmpictl list >/dev/full' 2>"$TEST_DIR/err"
grep -q "No space left" "$TEST_DIR/err" || fail "$(cat "$TEST_DIR/err")"

step "one job"
start first
expect_eq "$(ctl list | awk 'NR == 2 {print $1, $2, $3, $5}')" "first running 4 node1,node2"
expect_eq "$(ctl status --json | jq -r '[.job, .stage, .ranks, .slots[1].node, .slots[1].ranks[1].rank, .spares[0]] | @csv' | tr -d '"')" \
  "first,running,4,node2,3,node3"
pid=$(ctl status --json | jq '.slots[1].ranks[1].pid')
node node2 sh -c "tr '\0' ' ' </proc/$pid/cmdline" | grep -q misbehave || fail "pid $pid on node2 is not rank 3"
expect_eq "$(node node5 stat -c %a /tmp/xmpi-0 /tmp/xmpi-0/first.sock | tr '\n' ' ')" "700 600 "

step "who asks has another environment than who started it"
expect_eq "$(node node5 env XDG_RUNTIME_DIR=/run xmpictl status first | head -1)" "job first: running, 4 ranks, 0 migrations so far"

step "a launcher that does not answer is named"
# Not as the command of `lab exec`, which stops with it.
node node5 sh -c 'xmpiexec -job silent -n 1 -hosts node1 sleep 1000 & wait' &
wait_for 30 node node5 test -S /tmp/xmpi-0/silent.sock
node node5 pkill -STOP -f "^xmpiexec -job silent"
refused 1 "job silent: the launcher does not answer" list
grep -q ^first "$TEST_DIR/out" || fail "the other job is not listed: $(cat "$TEST_DIR/out")"
node node5 pkill -KILL -f "^xmpiexec -job silent"
expect_eq "$(ctl list | awk 'NR > 1 {print $1}')" first

step "a second job"
start second
refused 2 "first, second" status
expect_eq "$(ctl status second | head -1)" "job second: running, 4 ranks, 0 migrations so far"
expect_status 1 node node5 xmpiexec -job second -n 1 true 2>"$TEST_DIR/err"
grep -q "second is running already" "$TEST_DIR/err" || fail "$(cat "$TEST_DIR/err")"

step "what cannot be moved"
refused 1 "not movable" evacuate first node1
refused 1 "it runs on node1, node2" evacuate first node4
refused 1 "no migration" cancel first
refused 2 "" evacuate
expect_eq "$(ctl evacuate first node1 --json | jq -c '[.ok, .from]' || true)" '[false,"node1"]'

step "nonsense on the control socket harms nobody"
node node5 python3 -c '
import socket
def ask(words):
    s = socket.socket(socket.AF_UNIX); s.connect("/tmp/xmpi-0/first.sock"); s.sendall(words)
    return s.makefile().readline()
for words in [b"{}\n", b"\xff\x00\n", b"[" * 9000, b"{\"command\":\"fly\"}\n"]:
    assert "error" in ask(words), words
held = []
for _ in range(200):
    s = socket.socket(socket.AF_UNIX); s.connect("/tmp/xmpi-0/first.sock"); held.append(s)
'
expect_eq "$(ctl status first | head -1)" "job first: running, 4 ranks, 0 migrations so far"

step "another user"
node node5 setpriv --reuid 65534 --clear-groups xmpictl list >"$TEST_DIR/out" 2>&1 || true
! grep -q first "$TEST_DIR/out" || fail "another user sees our jobs: $(cat "$TEST_DIR/out")"

step "both end"
node node5 pkill -TERM -x xmpiexec
wait
expect_eq "$(ctl list)" "no job of yours runs on this host"
node node5 test ! -e /tmp/xmpi-0 || fail "the control folder is left"
expect_clean node1 node2 node5
