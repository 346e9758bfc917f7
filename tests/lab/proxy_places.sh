#!/bin/bash
# Where the ranks of a slot are put on their node: cores, network interface, ports; before a move and after it. And
# a node where the proxy lacks the privilege for namespaces: the job runs and says what is lost (plain_user moves such a job).
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$CHECKOUT/tests/lab/move_lib.sh"

# cores_of NODE: the core list of each rank there, one a line.
cores_of() { node "$1" sh -c 'for p in $(pgrep -x witness); do awk "/^Cpus_allowed_list/ {print \$2}" /proc/$p/status; done'; }
# No two ranks of the node share a core while others are free.
expect_own_cores() {
  local all
  all=$(cores_of "$1")
  expect_eq "$(wc -l <<<"$all")" 2 "ranks on $1"
  expect_eq "$(sort -u <<<"$all" | wc -l)" 2 "cores of the two ranks on $1 ($(paste -sd ' ' <<<"$all"))"
}
# Every port that a rank or the proxy listens on is in the range, on the one address.
expect_ports() {
  local node=$1 address listening
  address=$(node node2 getent hosts "$node" | awk '{print $1}')
  listening=$(node "$node" ss -Hltnp | awk '/witness|xmpi-proxy/ {print $4}')
  [[ -n $listening ]] || fail "no rank listens on $node"
  awk -F: -v address="$address" '$1 != address || $2 < 20000 || $2 > 20199 {print "port " $0; exit 1}' <<<"$listening" ||
    fail "$node listens elsewhere: $listening"
}

if (($(nproc) >= 2)); then
  step "cores, interface and ports"
  LAUNCH=(-bind-to core -iface eth0 -port-range "20000:20199")
  start 4 2 -pause 2000 -lines 1
  expect_own_cores node1
  expect_own_cores node2
  expect_ports node1
  move node1 node3
  expect_own_cores node3
  expect_ports node3
  step "two slots on one node"
  move node3 node2
  expect_eq "$(pids node2 witness | wc -l)" 4 "ranks on node2"
  finish
  expect_same_result 4 2
fi

step "no privilege for namespaces"
mkdir -p "$XMPI_BUILD/tests"
weak=$XMPI_BUILD/tests/weak_shell
cat >"$weak" <<'END'
#!/bin/bash
host=$1
shift
exec ssh -o BatchMode=yes "$host" setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin "$@"
END
chmod +x "$weak"
LAUNCH=(-launcher exec "$weak")
start 4 2 -pause 2000 -lines 1
grep -q "no PID and mount namespaces" "$TEST_DIR/err" || fail "nobody says what is lost: $(tail -5 "$TEST_DIR/err")"
finish
expect_lines 4
start 4 2 -pause 2000 -lines 1
node node1 pkill -9 -x xmpi-proxy
wait "$job" && fail "the job says that all is well"
expect_clean node1 node2 node3 $HEAD
