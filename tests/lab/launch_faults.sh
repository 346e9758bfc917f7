#!/bin/bash
# Hosts and programs that are not as they should be: named, with what to do, in bounded time.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# refused SECONDS CODE WORDS... -- OPTIONS...: xmpiexec fails with CODE within SECONDS and says all WORDS.
refused() {
  local seconds=$1 code=$2 words=() began=$SECONDS status=0
  shift 2
  while [[ $1 != -- ]]; do words+=("$1") && shift; done
  shift
  node node5 xmpiexec "$@" </dev/null 2>"$TEST_DIR/err" || status=$?
  ((SECONDS - began <= seconds)) || fail "took $((SECONDS - began)) s: $*"
  expect_eq "$status" "$code" "exit code of: $*; $(cat "$TEST_DIR/err")"
  for word in "${words[@]}"; do
    grep -qi -- "$word" "$TEST_DIR/err" || fail "'$word' is not in: $(cat "$TEST_DIR/err")"
  done
}

node node5 mkdir -p /root/.ssh
node node5 sh -c 'cat >/root/.ssh/config' <<'END'
Host sleepy
  HostName node1
  Port 2222
Host closed
  HostName node1
  Port 2223
Host stranger
  HostName node1
  HostKeyAlias nobody-knows-this-key
Host keyless
  HostName node1
  HostKeyAlias node1
  IdentityFile none
  IdentitiesOnly yes
END
cleanup() {
  node node5 rm -f /root/.ssh/config
  node node1 pkill -f sleepy_listener || true
  lab heal node3
}
trap 'cleanup; rm -rf "$TEST_DIR"' EXIT

step "a host name that does not resolve"
refused 10 1 "no-such-host" -- -n 2 -hosts node1,no-such-host true
step "a closed port"
refused 10 1 closed refused -- -n 2 -hosts node1,closed true
step "an unknown host key"
refused 10 1 stranger "host key" -- -n 2 -hosts node1,stranger true
step "no key that the host takes"
refused 10 1 keyless "permission denied" -- -n 2 -hosts node1,keyless true

step "a host that accepts and says nothing"
node node1 setsid -f python3 -c '
import socket, time  # sleepy_listener
s = socket.create_server(("", 2222))
held = []
while True: held.append(s.accept())' </dev/null >/dev/null 2>&1
refused 20 1 sleepy -- -n 2 -hosts node2,sleepy true
refused 8 1 sleepy "in time" -- -timeouts start=3 -n 2 -hosts node2,sleepy true

step "a host that has gone silent"
lab drop node3
refused 20 1 node3 -- -n 2 -hosts node2,node3 true
lab heal node3

step "no xmpi-proxy there"
refused 10 1 /no/such/xmpi-proxy -proxy-path -- -proxy-path /no/such/xmpi-proxy -n 2 -hosts node1,node2 true
step "no program there"
refused 10 127 nonesuch node -- -n 2 -hosts node1,node2 nonesuch
step "a program that may not be run"
refused 10 127 /etc/passwd "denied" -- -n 2 -hosts node1,node2 /etc/passwd
step "a network interface that is not there"
refused 10 2 eth9 eth0 -- -iface eth9 -n 2 -hosts node1,node2 true

step "Ctrl-C while a host hangs"
node node5 bash -c 'xmpiexec -n 2 -hosts node2,sleepy true; echo $? >/tmp/code' 2>/dev/null &
wait_for 10 node node5 pgrep -f "sleepy" >/dev/null
node node5 pkill -INT -x xmpiexec
wait_for 5 node node5 test -s /tmp/code
expect_eq "$(node node5 cat /tmp/code)" 130 "exit code"
node node5 rm /tmp/code
wait

cleanup
expect_clean node2 node3
