#!/bin/bash
# Files that ranks have open: on shared storage they stay where they are, on a node's own disk they travel, content,
# mode, time and offsets; nothing on the target is overwritten, and what cannot be is refused before anybody stops.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$CHECKOUT/tests/lab/move_lib.sh"
source "$CHECKOUT/tests/lab/holds_lib.sh"

SHARED=$XMPI_BUILD/tests/holds-files # the build tree is the lab's shared storage
rm -rf "$SHARED"
mkdir -p "$SHARED"
forget() { for name in node1 node2 node3 node5; do node $name sh -c 'rm -rf /root/new /root/here /root/[a-z]-* /root/big-*'; done; }
trap 'touch "$STOP"; [[ ! -d $SHARED ]] || touch "$SHARED/enough"; wait || true; rm -rf "$TEST_DIR" "$STOP" "$SHARED"' EXIT
forget
for name in node1 node2; do node $name sh -c 'for r in 0 1 2 3; do seq 0 99999 >/root/r-$r; done; mkdir -p /root/here /root/new/deep'; done

step "logs on shared storage that another node lengthens all the time, a file on a disk, pages of one, a deleted one"
node node5 sh -c "while [ ! -e $SHARED/enough ]; do echo other >>$SHARED/log; echo other >>$SHARED/log2; sleep 0.002; done" &
things=(append append-read written read mapped deleted lock folder)
hold 4 2 -hold "append=$SHARED/log" -hold "append-read=$SHARED/log2" -hold "written=/root/new/deep/w-%d" \
  -hold "read=/root/r-%d" -hold "mapped=/root/m-%d" -hold "deleted=/root/d-%d:10" -hold "lock=/root/l-%d" \
  -hold folder=/usr/lib
move node1 node3
move node2 node5
move node3 node1 # where an older state of its files lies
holds 4 3 "${things[@]}"
let_go 4 3
touch "$SHARED/enough"
wait
for rank in 0 1 2 3; do
  for log in "$SHARED/log" "$SHARED/log2"; do
    awk -v rank=$rank '$1 == rank && $3 != n++ {bad = 1} END {exit bad || !n}' "$log" || fail "lines of rank $rank in $log are not whole"
  done
done
for rank in 0 1; do
  node node1 awk '$3 != n++ {bad = 1} END {exit bad || !n}' /root/new/deep/w-$rank || fail "w-$rank is not whole"
  expect_eq "$(node node1 stat -c %a /root/new/deep/w-$rank)" 640 "mode of w-$rank"
done
expect_eq "$(node node3 sh -c 'ls -A /root/new/deep | grep -c xmpi || true')" 0 "drafts left"

step "a deleted file of 300 MiB, and shared memory of two ranks"
hold 2 2 -hold "deleted=/root/big-%d:150" -hold common=/holds
move node1 node3
holds 2 1 deleted common
let_go 2 1

step "another file of that name on the target"
node node3 sh -c 'rm -rf /root/new; echo precious >/root/w-0'
hold 2 1 -hold "written=/root/w-%d"
stays "another file of that name is on" node1 node3
expect_eq "$(node node3 cat /root/w-0)" precious "what lay there"
move node1 node5
let_go 2 1

step "-no-carry-files"
node node5 rm -f /root/w-0
LAUNCH=(-no-carry-files)
hold 2 1 -hold "written=/root/w-%d" -hold "append=$SHARED/log"
stays "/root/w-0 is open for writing and is not on node5.*-no-carry-files" node1 node5
let_go 2 0
LAUNCH=()

step "a folder that is missing on the target, until somebody makes it"
hold 2 1 -hold folder=/root/here
stays "/root/here is not on node3" node1 node3
node node3 mkdir /root/here
move node1 node3
holds 2 1 folder
let_go 2 1

step "a lock on shared storage, and a deleted file that two ranks share"
hold 2 2 -hold "lock=$SHARED/locked-%d"
stays "a file lock" node1 node3
let_go 2 0
hold 2 2 -hold common-deleted=/holds
stays "a deleted file is open or mapped in several ranks: /dev/shm/holds" node1 node3
let_go 2 0
rm -rf "$SHARED"
forget
expect_clean node1 node2 node3 node5 $HEAD
