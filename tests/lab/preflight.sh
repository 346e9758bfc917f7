#!/bin/bash
# What would make a move fail is found before anybody is asked to stop: each kind made with real parts, refused with
# its owner and a remedy, the job undisturbed. What cannot be told from MPI's own is found just before the dump.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$CHECKOUT/tests/lab/move_lib.sh"
trap 'fresh_lab; touch "$STOP"; wait || true; rm -rf "$TEST_DIR" "$STOP" "$SHELL_SCRIPT"' EXIT
SHELL_SCRIPT=$XMPI_BUILD/tests/preflight_shell

# says WORDS...: each is in what the last refusal said.
says() {
  local word
  for word; do grep -q -- "$word" "$TEST_DIR/refused" || fail "'$word' is not in: $(cat "$TEST_DIR/refused")"; done
}

# undisturbed RANKS: it ends as if nobody had asked for anything.
undisturbed() {
  finish
  expect_eq "$(field rebuilt)" 0 "rebuilds"
  expect_lines "$1"
}

# through_shell COMMAND: proxies on node3 are started through COMMAND, all others as always.
through_shell() {
  cat >"$SHELL_SCRIPT" <<END
#!/bin/bash
node=\$1
shift
[[ \$node != node3 ]] || set -- $1 "\$@"
exec ssh -o BatchMode=yes "\$node" "\$@"
END
  chmod +x "$SHELL_SCRIPT"
  LAUNCH=(-launcher exec "$SHELL_SCRIPT")
}

step "all that a rank can hold and no dump carry, told at once"
node node1 sh -c '[ -e /dev/fuse ] || mknod -m 666 /dev/fuse c 10 229'
start 4 2 -pause 2000 -lines 1 -hold connection 0 -hold io_uring 1 -hold sysv 1 -hold device 0 -hold daemon 1 \
  -hold polled-connection 1 -hold polled-udp 1
refused "preflight" node1 --to node3
says "TCP connection 127.0.0.1:.*(rank 0, PID [0-9]*, descriptor [0-9]*)" "io_uring (rank 1, PID [0-9]*, descriptor" \
  "System V shared memory (SYSV00000000, shmid [0-9]*) (rank 1, PID" "device /dev/fuse (rank 0" \
  "TCP socket listening on 0.0.0.0:[0-9]* (rank 1, PID [0-9]*, descriptor" \
  "TCP connection 127.0.0.1:[0-9]* -> 127.0.0.1:[0-9]* (rank 1, PID" "UDP connection .* (rank 1, PID" \
  "process witness (PID [0-9]* in its slot) has left" "must close it before XMPI_Quiesce" "shmdt"
# Of the ranks' many other sockets none is named: they are MPI's.
expect_eq "$(grep '^xmpictl:' "$TEST_DIR/refused" | grep -o 'holds a [A-Z]*' | sort | uniq -c | xargs)" \
  "4 holds a TCP 1 holds a UDP" "the sockets that are named"
wait_for 10 nothing_left_on node3
undisturbed 4
expect_same_result 4 2
node node1 ipcrm --all=shm

step "what may be MPI's: a socket that leads nowhere yet, found when it is not, before the dump"
start 4 2 -pause 2000 -lines 1 -hold unconnected 1
refused "cannot dump" node1 --to node3
says "TCP socket, not connected (rank 1, PID [0-9]*, descriptor"
move node2 node3 # the other slot can go
finish
expect_lines 4
expect_same_result 4 2

step "the target lacks the folder and the program, which is told at once; then the program"
# shellcheck disable=SC2016 # expanded on the node
for name in node1 node2; do node $name sh -c 'mkdir /root/only && cp "$(command -v witness)" /root/only'; done
LAUNCH=(-wdir /root/only -genv PATH /root/only:/usr/bin:/bin)
start 4 2 -pause 2000 -lines 1
refused "the folder /root/only is not on node3" node1 --to node3
says "/root/only/witness is not on node3 (ranks 0, 1)" "make it there"
node node3 mkdir -p /root/only
refused "/root/only/witness is not on node3" node1 --to node3
# shellcheck disable=SC2016 # expanded on the node
node node3 sh -c 'cp "$(command -v witness)" /root/only'
move node1 node3
finish
LAUNCH=()
for name in node1 node2 node3; do node $name rm -r /root/only; done

step "a library of another build on the target"
start 4 2 -pause 2000 -lines 1
# One that only the ranks use.
# shellcheck disable=SC2016 # expanded on the node
library=$(node node1 sh -c 'sed -n "s|.* \(/.*/libucm.so.*\)|\1|p" "/proc/$(pgrep -xo witness)/maps" | head -1')
other=$(node node1 readlink -f /usr/lib/x86_64-linux-gnu/libm.so.6)
node node3 mount --bind "$other" "$library"
refused "another build on node3" node1 --to node3
says "$library" "ranks 0, 1" "install the same version on both nodes"
node node3 umount "$library"

step "no CRIU on the target"
criu=$(node node3 sh -c 'readlink -f "$(command -v criu)"')
node node3 mount --bind /dev/null "$criu"
refused "install the package criu" node1 --to node3
undisturbed 4

step "xmpictl doctor says so too, and names whoever is silent"
expect_status 1 node node1 xmpictl doctor node2 node3 >"$TEST_DIR/refused"
says "REFUSED: CRIU is of no use on node3" "remedy: install the package criu"
node node3 umount "$criu"
node node1 xmpictl doctor node2 node3 --json >"$TEST_DIR/doctor.json" || fail "$(cat "$TEST_DIR/doctor.json")"
expect_eq "$(jq -c '[.ok, (.nodes | length), (.nodes[] | .criu)]' "$TEST_DIR/doctor.json")" \
  "[true,3,\"4.1.1\",\"4.1.1\",\"4.1.1\"]" "what doctor --json says"
node node1 xmpictl doctor >/dev/null || fail "doctor alone"
lab freeze node5
began=$SECONDS
expect_status 1 node node1 xmpictl doctor nosuchhost node5 >"$TEST_DIR/refused"
((SECONDS - began < 40)) || fail "doctor took $((SECONDS - began)) s"
says "nosuchhost tells nothing" "node5 tells nothing"
lab thaw node5
expect_status 2 node node1 xmpictl doctor --frob 2>/dev/null
expect_status 2 node node1 xmpictl doctor -- -oProxyCommand=false 2>/dev/null

step "the target's CPU lacks what the ranks may use"
through_shell "env XMPI_CPU_WITHOUT=avx2,smep"
start 4 2 -pause 2000 -lines 1
refused "the CPU of node3 lacks avx2, which node1 has" node1 --to node3
says "-cpu-baseline"
undisturbed 4
LAUNCH+=(-cpu-baseline v2)
start 4 2 -pause 2000 -lines 1
move node1 node3
finish

step "a cgroup of the target is too small for the ranks"
# shellcheck disable=SC2016 # expanded on the node
node node3 sh -c 'mkdir -p /run/small && mount -t cgroup -o memory none /run/small 2>/dev/null &&
  mkdir -p /run/small/xmpi-preflight && echo 60000000 >/run/small/xmpi-preflight/memory.limit_in_bytes' || {
  echo "no memory cgroup of version 1 can be made here: not tried"
  exit 0
}
cat >"$XMPI_BUILD/tests/preflight_small" <<'END'
#!/bin/sh
echo $$ >/run/small/xmpi-preflight/cgroup.procs && exec "$@"
END
chmod +x "$XMPI_BUILD/tests/preflight_small"
through_shell "$XMPI_BUILD/tests/preflight_small"
start 4 2 -pause 2000 -lines 1 -hold memory 0
refused "node3 has room for" node1 --to node3
says "/run/small/xmpi-preflight bounds it" "raise the limit"
undisturbed 4
wait_for 10 node node3 rmdir /run/small/xmpi-preflight # it is the host's, and outlives the node
