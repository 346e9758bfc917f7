#!/bin/bash
# Twenty evacuations of one job in a row, back and forth between two nodes. The result is the undisturbed one,
# launcher and proxies hold as many descriptors as after the first moves, and the memory of those that live
# through all moves does not grow with their number.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

MOVES=20
HEAD=node4
SLOPE_LIMIT_KB=16
stop=$CHECKOUT/build/twenty_moves.stop
rm -f "$stop"
trap 'touch "$stop"; rm -rf "$TEST_DIR"' EXIT

# sample NODE PATTERN: "fds rss_kb" of the one process there whose command line matches.
sample() {
  # shellcheck disable=SC2016 # expanded on the node
  node "$1" bash -c 'pid=$(pgrep -o -f "$1") && echo "$(ls /proc/$pid/fd | wc -l) $(awk "/^VmRSS/ {print \$2}" /proc/$pid/status)"' _ "$2"
}

step "the job starts"
node $HEAD xmpiexec -job twenty -n 4 -ppn 2 -hosts node1,node2 ring -until "$stop" -pause 500 >"$TEST_DIR/out" &
job=$!
wait_for 60 grep -q '^step' "$TEST_DIR/out"

here=node1 there=node3
for ((move = 1; move <= MOVES; ++move)); do
  node $HEAD xmpictl evacuate twenty "$here" --to "$there" --json >"$TEST_DIR/move.json" ||
    fail "move $move: $(cat "$TEST_DIR/move.json")"
  jq -e '.ok and (.ranks | length == 2)' "$TEST_DIR/move.json" >/dev/null || fail "move $move: $(cat "$TEST_DIR/move.json")"
  here=$there there=$([[ $here == node1 ]] && echo node3 || echo node1)
  echo "$move $(sample $HEAD '^xmpiexec') $(sample node2 '^[^ ]*xmpi-proxy') $(sample "$here" '^[^ ]*xmpi-proxy')" |
    tee -a "$TEST_DIR/samples"
done
step "$MOVES moves are done"
touch "$stop"
wait $job || fail "the job ended with code $?: $(tail -3 "$TEST_DIR/out")"
moved=$(tail -1 "$TEST_DIR/out")
echo "$moved"
[[ $moved == *"rebuilt $MOVES "* ]] || fail "expected $MOVES rebuilds: $moved"

step "an undisturbed run of as many steps"
steps=$(awk '/^steps/ {print $2}' "$TEST_DIR/out")
plain=$(node $HEAD xmpiexec -n 4 -ppn 2 -hosts node1,node2 ring -steps "$steps" | tail -1)
expect_eq "${moved##*checksum }" "${plain##*checksum }" "the checksum after $steps steps"

# Columns: move, then fds and rss of launcher, staying proxy, moved proxy. Least squares over the last 15.
awk -v limit=$SLOPE_LIMIT_KB '
  NR <= 5 { for (i = 2; i <= 6; i += 2) fds[i] = $i; next }
  {
    ++n; sx += $1; sxx += $1 * $1
    for (i = 3; i <= 5; i += 2) { sy[i] += $i; sxy[i] += $1 * $i }
    for (i = 2; i <= 6; i += 2) if ($i != fds[i]) { print "descriptors changed at move " $1 ": " $0; bad = 1 }
  }
  END {
    for (i = 3; i <= 5; i += 2) {
      slope = (n * sxy[i] - sx * sy[i]) / (n * sxx - sx * sx)
      printf "%s: RSS slope %.1f kB a move\n", i == 3 ? "launcher" : "staying proxy", slope
      if (slope > limit) bad = 1
    }
    exit bad
  }' "$TEST_DIR/samples" || fail "descriptors or memory grow with the number of moves"
expect_clean node1 node2 node3 $HEAD
