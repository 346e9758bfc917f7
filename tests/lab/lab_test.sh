#!/bin/bash
# The lab keeps its promises: hosts that differ, faults that do what they say, two labs side by side, and
# nothing left behind, also when "lab up" is killed half-way. Uses labs of its own beside the shared one.
# shellcheck source=tests/lab/lib.sh
source "$(dirname "$0")/lib.sh"

SHARED_LAB=$XMPI_LAB
FIRST=$SHARED_LAB-a
SECOND=$SHARED_LAB-b
trap 'for name in "$FIRST" "$SECOND"; do lab down --name "$name"; done; rm -rf "$TEST_DIR"' EXIT

# What the machine shows of labs, by kind; two snapshots are compared.
host_mounts() { cut -d' ' -f4,5,9- "/proc/$XMPI_HOST_PID/mountinfo" | sort; }
host_links() { ip -o link | sed -e 's/^[0-9]*: //' -e 's/[@:].*//' | sort; }
host_folders() { (cd "/proc/$XMPI_HOST_PID/root/run" && ls -d xmpi-lab xmpi-lab/* 2>/dev/null) || true; }

# Zombies are left out: they are their parent's, the machine's init.
lab_processes() {
  { grep -sl "xmpi-lab/$1\(/\|\$\)" /proc/[0-9]*/cgroup || true; } | cut -d/ -f3
}
lab_namespaces() {
  local pid
  for pid in $(lab_processes "$1"); do namespaces_of "$pid"; done | sort -u
}
all_namespaces() { namespaces_of '[0-9]*' | sort -u; }

# namespaces_of PID: nothing for one that has ended.
namespaces_of() {
  # shellcheck disable=SC2086 # may be a pattern
  readlink /proc/$1/ns/{mnt,net,pid,uts,ipc,time,cgroup} 2>/dev/null || true
}

# Namespaces in $1 that are not the host's, that is, the lab's alone.
foreign_namespaces() { comm -23 "$1" <(namespaces_of "$XMPI_HOST_PID" | sort -u); }

none_is_left_of() {
  [[ -z $(lab_processes "$1") && -z $(comm -12 "$2" <(all_namespaces)) ]]
}

check_hosts_differ() {
  step "own hostname, clock, PIDs, root, shared memory; the checkout is there on all"
  expect_eq "$(node node1 hostname)" node1 hostname
  local uptimes
  uptimes=$(for name in node1 node2 node3; do node "$name" cut -d. -f1 /proc/uptime; done)
  awk 'NR > 1 && $1 - last < 4000 {exit 1} {last = $1}' <<<"$uptimes" || fail "clocks too close: $uptimes"
  expect_eq "$(node node1 cat /proc/1/comm)" tini "PID 1"
  node node1 touch /root/own /tmp/own /dev/shm/own /run/own
  expect_status 1 node node2 bash -c 'ls /root/own /tmp/own /dev/shm/own /run/own 2>/dev/null | grep .'
  expect_eq "$(node node1 pwd)" "$PWD" "the working directory on the node"
  node node1 cmp "$CHECKOUT/dev" "$CHECKOUT/dev"
}

check_exec() {
  step "exec passes exit codes, arguments, both directions of stdio"
  expect_status 37 node node1 bash -c 'exit 37'
  expect_status 143 node node1 bash -c 'kill -TERM $$'
  # shellcheck disable=SC2016 # not to be expanded anywhere
  expect_eq "$(node node1 printf '%s|' 'a  b' '' '$x' "ü'\"")" "a  b||\$x|ü'\"|" arguments
  expect_eq "$(seq 100000 | node node2 sha256sum)" "$(seq 100000 | sha256sum)" stdin
  expect_eq "$(node node1 bash -c 'echo out; echo err >&2' 2>/dev/null)" out stdout
}

check_exec_ends_with_its_caller() {
  step "a command ends when its exec is ended"
  "$CHECKOUT/dev" lab exec node1 sleep 987654 &
  local exec_pid=$!
  wait_for 10 node node1 pgrep -f '^sleep 987654'
  kill "$exec_pid"
  wait "$exec_pid" || true
  wait_for 10 bash -c "! '$CHECKOUT/dev' lab exec node1 pgrep -f '^sleep 987654'"
}

check_ssh() {
  step "ssh between nodes without a prompt, with the lab's environment"
  expect_eq "$(node node1 ssh -o BatchMode=yes node2 hostname </dev/null)" node2 ssh
  expect_eq "$(node node2 ssh -o BatchMode=yes "$(status_of node3 address)" hostname)" node3 "ssh by address"
  node node1 ssh node2 env | grep -q "^MPIR_CVAR_ENABLE_HEAVY_YIELD=1$" || fail "no MPICH settings over ssh"
  node node1 ssh node2 env | grep -q "^PATH=$XMPI_BUILD/bin:" || fail "the build is not first in PATH"
  expect_eq "$(lab ssh node3 hostname)" node3 "lab ssh"
}

check_privileges() {
  step "what XMPI needs of a host: CRIU, nested namespaces, no way out"
  node node1 criu check 2>&1 | grep -q 'Looks good' || fail "criu check: $(node node1 criu check 2>&1)"
  local offset
  # shellcheck disable=SC2016 # awk's own
  offset=$(node node1 unshare --pid --mount --time --monotonic 123456 --fork --mount-proc \
    awk '$1 == "monotonic" {print $2}' /proc/self/timens_offsets)
  expect_eq "$offset" 123456 "the offset of a nested time namespace"
  expect_eq "$(node node1 ip route show default)" "" "default route"
}

check_orphans_are_reaped() {
  step "orphans are reaped"
  node node1 bash -c '(sleep 0.01 & exec true) & wait; exit 0'
  wait_for 10 bash -c "! '$CHECKOUT/dev' lab exec node1 ps -eo stat= | grep -q Z"
}

check_network_faults() {
  step "cut pulls the cable, drop does not, heal undoes both"
  lab cut node2
  expect_eq "$(node node2 cat /sys/class/net/eth0/carrier)" 0 "carrier of a cut node"
  expect_status 1 node node1 ping -qc1 -W1 node2 >/dev/null
  lab heal node2
  wait_for 10 node node1 ping -qc1 -W1 node2 >/dev/null
  lab drop node2
  expect_eq "$(node node2 cat /sys/class/net/eth0/carrier)" 1 "carrier of a node whose packets drop"
  expect_status 1 node node1 ping -qc1 -W1 node2 >/dev/null
  expect_status 1 node node2 ping -qc1 -W1 node1 >/dev/null
  expect_eq "$(status_of node2 link)" drop "status"
  lab heal node2
  wait_for 10 node node1 ping -qc1 -W1 node2 >/dev/null
}

check_freeze() {
  step "freeze stops every process, thaw lets them go on"
  # shellcheck disable=SC2016 # expanded on the node
  "$CHECKOUT/dev" lab exec node2 bash -c 'while :; do echo $((++i)) >/tmp/count; sleep 0.01; done' &
  local counter=$! count before
  count=/proc/$(status_of node2 init_pid)/root/tmp/count
  wait_for 10 test -s "$count"
  lab freeze node2
  expect_eq "$(status_of node2 state)" frozen state
  before=$(<"$count")
  expect_status 1 node node2 true
  # Time enough for a dozen rounds of the counter, spent where it shows: on a neighbour.
  node node1 timeout 1 ping -qi 0.1 -c 100 node3 >/dev/null || true
  expect_eq "$(<"$count")" "$before" "the counter of a frozen node"
  lab thaw node2
  wait_for 10 bash -c "[[ \$(<$count) != '$before' ]]"
  kill "$counter"
  wait "$counter" || true
}

check_kill_and_start() {
  step "kill powers off, start boots with a fresh disk and the same name and keys"
  node node3 touch /root/old
  "$CHECKOUT/dev" lab exec node3 sleep 1000 &
  local sleeper=$!
  wait_for 10 node node3 pgrep -x sleep >/dev/null
  lab kill node3
  expect_status 137 wait "$sleeper"
  expect_eq "$(status_of node3 state)" dead state
  expect_status 1 node node3 true
  expect_status 1 node node1 ping -qc1 -W1 node3 >/dev/null
  lab start node3
  expect_status 1 node node3 test -e /root/old
  expect_eq "$(node node1 ssh -o BatchMode=yes node3 hostname)" node3 "ssh after start"
}

# For the tests that promise to leave a node clean.
check_leftovers_are_seen() {
  step "leftovers on a node are seen"
  lab reset
  expect_clean node1 node2 node3
  node node2 bash -c 'setsid sleep 777777 </dev/null >/dev/null 2>&1 & touch /dev/shm/left'
  expect_eq "$(node_leftovers node2 | grep -c 'sleep 777777\|/dev/shm/left')" 2 "leftovers seen"
  expect_clean node1
}

check_rate() {
  step "rate limits both directions"
  local direction started
  lab rate node2 80mbit
  # 20 MB are 2 s at this rate; the first of them pass in a burst.
  for direction in "head -c 20000000 /dev/zero | ssh node2 'cat >/dev/null'" \
    "ssh node2 head -c 20000000 /dev/zero >/dev/null"; do
    started=${EPOCHREALTIME/[.,]/}
    node node1 bash -c "$direction"
    ((${EPOCHREALTIME/[.,]/} - started > 1700000)) || fail "faster than 80mbit: $direction"
  done
  lab rate node2 none
  expect_eq "$(node node2 tc qdisc show dev eth0 | grep -c tbf || true)" 0 "limits after none"
  expect_status 1 lab rate node2 fast
}

check_two_labs_and_down() {
  step "a second lab has addresses of its own; down leaves nothing"
  XMPI_LAB=$SECOND lab up -n 2
  [[ $(XMPI_LAB=$FIRST status_of node1 address) != "$(XMPI_LAB=$SECOND status_of node1 address)" ]] ||
    fail "both labs use the same addresses"
  # 2: "Network is unreachable"; 1 would be no answer.
  expect_status 2 node node1 ping -qc1 -W1 "$(XMPI_LAB=$SECOND status_of node1 address)"
  expect_down_leaves_nothing "$SECOND" before_second
  expect_eq "$(node node1 hostname)" node1 "the first lab after the second's end"
}

check_killed_up() {
  step "down removes what a killed up left"
  setsid "$CHECKOUT/dev" lab up -n 6 --name "$SECOND" &
  local up=$!
  wait_for 20 bash -c "ls /proc/$XMPI_HOST_PID/root/run/xmpi-lab/$SECOND/node2/init >/dev/null 2>&1"
  kill -KILL -- "-$up"
  wait "$up" || true
  expect_down_leaves_nothing "$SECOND" before_second
  lab down --name "$SECOND" # again, with nothing there
}

# expect_down_leaves_nothing LAB SNAPSHOT: the machine is again as in SNAPSHOT, made before LAB came up.
expect_down_leaves_nothing() {
  lab_namespaces "$1" >"$TEST_DIR/namespaces.all"
  foreign_namespaces "$TEST_DIR/namespaces.all" >"$TEST_DIR/namespaces"
  [[ -s $TEST_DIR/namespaces ]] || fail "the lab $1 shows no namespaces of its own: nothing to check"
  lab down --name "$1"
  wait_for 10 none_is_left_of "$1" "$TEST_DIR/namespaces"
  diff "$TEST_DIR/$2/mounts" <(host_mounts) || fail "mounts changed"
  diff "$TEST_DIR/$2/links" <(host_links) || fail "network devices changed"
  diff "$TEST_DIR/$2/folders" <(host_folders) || fail "folders are left"
}

snapshot() {
  mkdir "$TEST_DIR/$1"
  host_mounts >"$TEST_DIR/$1/mounts"
  host_links >"$TEST_DIR/$1/links"
  host_folders >"$TEST_DIR/$1/folders"
}

# The second lab comes and goes while the first is up; the first comes and goes on its own.
snapshot before_first
XMPI_LAB=$FIRST lab up -n 3
export XMPI_LAB=$FIRST
check_hosts_differ
check_exec
check_exec_ends_with_its_caller
check_ssh
check_privileges
check_orphans_are_reaped
check_network_faults
check_freeze
check_kill_and_start
check_leftovers_are_seen
check_rate
snapshot before_second
check_two_labs_and_down
check_killed_up
step "down of the lab that had all of the above done to it"
expect_down_leaves_nothing "$FIRST" before_first
