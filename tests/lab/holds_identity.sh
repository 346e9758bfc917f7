#!/bin/bash
# Who a rank is and what time it is, wherever it runs: PIDs that the target uses for others, two slots with the same
# PIDs on one node, back to the first node, a second network interface that leads nowhere, sleeps and timers.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$CHECKOUT/tests/lab/move_lib.sh"
source "$CHECKOUT/tests/lab/holds_lib.sh"

cleanup() {
  for name in node1 node2 node3; do node $name sh -c "ip link del docker0; ip link del box" 2>/dev/null || true; done
  [[ -z ${occupier:-} ]] || node node3 pkill -x python3 || true
  touch "$STOP"
  wait || true
  rm -rf "$TEST_DIR" "$STOP"
}
trap cleanup EXIT

step "every node has an interface that leads nowhere, all with the same address"
for name in node1 node2 node3; do
  node $name sh -c 'ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev docker0 && ip link add box type veth peer name box1 && ip link set box master docker0 && ip link set box up && ip link set box1 up && ip link set docker0 up'
done
hold 4 2 -hold ids -hold sleeps -hold timers
places=$(node $HEAD xmpictl status --json | jq -c '[.. | objects | .namespace_pid?, .pid? | numbers] | unique')

step "node3 uses the ranks' PIDs for processes and zombies of its own: $places"
node node3 python3 - "$places" >"$TEST_DIR/occupied" <<'END' &
import json, os, signal, sys
def take(pid, dies):
    for _ in range(100):
        open("/proc/sys/kernel/ns_last_pid", "w").write(str(pid - 1))
        child = os.fork()
        if child == 0:
            if not dies: signal.pause()
            os._exit(0)
        if child == pid: return True
        os.kill(child, signal.SIGKILL); os.waitpid(child, 0)
        if os.path.exists(f"/proc/{pid}"): return True
    return False
pids = set(range(2, 12)) | set(json.loads(sys.argv[1]))
print(all([take(pid, pid % 2 == 0) for pid in pids]), flush=True)
signal.pause()
END
occupier=$!
wait_for 30 grep -q . "$TEST_DIR/occupied"
grep -q True "$TEST_DIR/occupied" || fail "node3 could not take them all"

# The second puts two slots with the same PIDs on one node; the third takes both to where one of them began.
for hop in "node1 node3" "node2 node3" "node3 node1"; do
  step "from ${hop% *} to ${hop#* }"
  # shellcheck disable=SC2086 # two words
  move $hop
done
holds 4 3 ids sleeps timers
let_go 4 3
kill "$occupier" 2>/dev/null || true
node node3 pkill -x python3 || true
expect_clean node1 node2 node3 $HEAD
