# What the tests of a moving job share. Sourced after lib.sh; the job runs from node4, on node1 and node2, with
# node3 and node5 free.
# shellcheck shell=bash

HEAD=node4
JOB=moving
STOP=$XMPI_BUILD/tests/$JOB.stop
trap 'touch "$STOP"; wait || true; rm -rf "$TEST_DIR" "$STOP"' EXIT

# start RANKS PER_NODE WITNESS_OPTION...: the job in the background, stdin from $INPUT; returns once it computes.
start() {
  local ranks=$1 per_node=$2
  shift 2
  rm -f "$STOP"
  : >"$TEST_DIR/out"
  node $HEAD "${start_env[@]}" xmpiexec -job $JOB -n "$ranks" -ppn "$per_node" -hosts node1,node2 "${LAUNCH[@]}" \
    witness -until "$STOP" "$@" <"${INPUT:-/dev/null}" >"$TEST_DIR/out" 2>"$TEST_DIR/err" &
  job=$!
  wait_for 60 grep -qs "host node" "$TEST_DIR/out"
}
LAUNCH=()
start_env=()
operator=() # what runs xmpictl

# move FROM TO: it works.
move() {
  node $HEAD "${operator[@]}" xmpictl evacuate $JOB "$1" --to "$2" --json >"$TEST_DIR/move.json" ||
    fail "evacuate $1 --to $2: $(cat "$TEST_DIR/move.json"); $(tail -5 "$TEST_DIR/err")"
  jq -e '.ok' "$TEST_DIR/move.json" >/dev/null || fail "it says it is not ok: $(cat "$TEST_DIR/move.json")"
}

# refused WORD FROM [--to TO]: it fails, says WORD, and the job goes on where it is.
refused() {
  local word=$1 before
  shift
  expect_status 1 node $HEAD "${operator[@]}" xmpictl evacuate $JOB "$@" >"$TEST_DIR/refused" 2>&1
  grep -qi -- "$word" "$TEST_DIR/refused" || fail "'$word' is not in: $(cat "$TEST_DIR/refused")"
  before=$(lines_of 0)
  wait_for 30 more_lines_than "$before"
}

# lines_of RANK: how far its numbered lines have come.
lines_of() { grep -c "^$1 out" "$TEST_DIR/out" || true; }
more_lines_than() { (($(lines_of 0) > $1)); }

# finish: the job ends well; its last line is in $last.
finish() {
  local status=0
  touch "$STOP"
  wait "$job" || status=$?
  expect_eq "$status" 0 "exit code; $(tail -5 "$TEST_DIR/err")"
  last=$(grep '^steps' "$TEST_DIR/out")
  echo "$last"
}

# field NAME: of the last line.
field() { awk -v name="$1" '{for (i = 1; i < NF; ++i) if ($i == name) print $(i + 1)}' <<<"$last"; }

# expect_same_result RANKS PER_NODE: an undisturbed run of as many steps has the same bits.
expect_same_result() {
  local moved plain
  moved=$(field checksum)
  plain=$(node $HEAD xmpiexec -n "$1" -ppn "$2" -hosts node1,node2 witness -steps "$(field steps)" | tail -1)
  expect_eq "$moved" "${plain##* }" "the checksum"
}

# expect_lines RANKS: every rank's numbered lines on both streams, complete and in order.
expect_lines() {
  local stream file
  for stream in out err; do
    file=$TEST_DIR/$stream
    awk -v ranks="$1" -v stream=$stream '
      $2 == stream && $1 ~ /^[0-9]+$/ { if ($3 != next_of[$1]++) { print "at line " NR ": " $0; exit 1 } }
      END { for (i = 0; i < ranks; ++i) if (next_of[i] == 0 || next_of[i] != next_of[0]) { print "rank " i " wrote " next_of[i]; exit 1 } }
    ' "$file" || fail "the lines of std$stream are not whole"
  done
}

# pids NODE PROGRAM; pid_namespace NODE PID
pids() { node "$1" pgrep -x "$2" || true; }
pid_namespace() { node "$1" readlink "/proc/$2/ns/pid"; }
