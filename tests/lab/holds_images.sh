#!/bin/bash
# Files travel with images that are held: the source is lost, the images are restored a second time where they are, or
# go on to another spare, which lacks what the first one had.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$CHECKOUT/tests/lab/move_lib.sh"
source "$CHECKOUT/tests/lab/holds_lib.sh"

RELEASE=$XMPI_BUILD/tests/holds.release
EVENTS=$XMPI_BUILD/tests/holds.events
PATIENCE="link_timeout=5,launcher_grace=1,redial_silence=2,image_progress=3"
forget() { for name in node1 node2 node3 node5; do node $name sh -c 'rm -rf /root/[a-z]-*'; done; }
trap 'touch "$STOP" "$RELEASE"; wait || true; rm -rf "$TEST_DIR" "$STOP" "$RELEASE" "$EVENTS"' EXIT

reached() { grep -q "fault.hit point=$1" "$TEST_DIR/err"; }
originals_lost() { grep -q "originals.lost" "$EVENTS"; }

# lost_source FAULT: the target holds the images and the source is gone when it goes on.
lost_source() {
  forget
  # Equal on the first target, so that it does not come with the images; missing on the second.
  for name in node1 node2 node3; do node $name sh -c 'for r in 0 1 2 3; do seq 0 99999 >/root/r-$r; done'; done
  rm -f "$RELEASE" "$EVENTS"
  start_env=(env "XMPI_FAULT=node3@transfer.after:hold=$RELEASE,$1")
  LAUNCH=(-spares "node3,node5" -timeouts "$PATIENCE" -event-log "$EVENTS")
  hold 4 2 -hold "written=/root/w-%d" -hold "read=/root/r-%d" -hold "mapped=/root/m-%d" -hold "deleted=/root/d-%d:2"
  timeout 120 "$CHECKOUT/dev" lab exec $HEAD xmpictl evacuate $JOB node1 --json >"$TEST_DIR/answer" 2>&1 &
  order=$!
  wait_for 60 reached transfer.after
  node node1 pkill -9 -x xmpi-proxy
  wait_for 30 originals_lost
  touch "$RELEASE"
  wait "$order" || fail "it did not move: $(cat "$TEST_DIR/answer"); $(tail -5 "$TEST_DIR/err")"
}

# ends_on NODE OTHER: the job ends well there, its files are whole, and none was left on OTHER.
ends_on() {
  expect_eq "$(jq -r .to "$TEST_DIR/answer")" "$1" "target"
  holds 4 1 written read mapped deleted
  let_go 4 1
  for rank in 0 1; do
    node "$1" awk '$3 != n++ {bad = 1} END {exit bad || !n}' /root/w-$rank || fail "w-$rank is not whole"
    expect_eq "$(node "$2" sh -c "ls /root/w-$rank /root/m-$rank 2>/dev/null | wc -l")" 0 "files left on $2"
  done
}

step "a second restore where the images are"
lost_source "node3@restore.after:error-once"
ends_on node3 node5

step "on to the next spare"
lost_source "node3@restore.after:error"
ends_on node5 node3
forget
expect_clean node1 node2 node3 node5 $HEAD
