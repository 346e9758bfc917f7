# What the tests of things that ranks hold share: a job of holder that moves. Sourced after lib.sh and move_lib.sh.
# shellcheck shell=bash

JOB=holding
STOP=$XMPI_BUILD/tests/$JOB.stop
mkdir -p "$XMPI_BUILD/tests"

# hold RANKS PER_NODE OPTION...: a holder in the background, stdin from $INPUT; returns once it runs.
hold() {
  local ranks=$1 per_node=$2
  shift 2
  rm -f "$STOP"
  : >"$TEST_DIR/out"
  node $HEAD "${start_env[@]}" xmpiexec -job $JOB -n "$ranks" -ppn "$per_node" -hosts node1,node2 "${LAUNCH[@]}" \
    holder -until "$STOP" -pause 3000 "$@" <"${INPUT:-/dev/null}" >"$TEST_DIR/out" 2>"$TEST_DIR/err" &
  job=$!
  wait_for 60 runs_or_ended
  grep -qs '^runs' "$TEST_DIR/out" || fail "it does not run: $(tail -3 "$TEST_DIR/err")"
}
runs_or_ended() { grep -qs '^runs' "$TEST_DIR/out" || ! kill -0 "$job" 2>/dev/null; }

# holds RANKS MOVES NAME...: each rank said that it holds each thing after each move.
holds() {
  local ranks=$1 moves=$2 name rank move
  shift 2
  for name; do
    for ((rank = 0; rank < ranks; ++rank)); do
      for ((move = 1; move <= moves; ++move)); do
        wait_for 30 grep -qs "^$rank holds $name after move $move " "$TEST_DIR/out" "$TEST_DIR/err"
      done
    done
  done
}

# let_go RANKS MOVES: the job ends well, everybody after so many moves.
let_go() {
  local status=0
  touch "$STOP"
  wait "$job" || status=$?
  expect_eq "$status" 0 "exit code; $(tail -5 "$TEST_DIR/err")"
  expect_eq "$(cat "$TEST_DIR/out" "$TEST_DIR/err" | grep -c "ended well: steps [0-9]* moves $2\$" || true)" "$1" "ranks that ended well"
}

# stays WORD FROM TO: the move is refused, WORD is said, and the job goes on where it is.
stays() {
  expect_status 1 node $HEAD xmpictl evacuate $JOB "$2" --to "$3" >"$TEST_DIR/refused" 2>&1
  grep -qi -- "$1" "$TEST_DIR/refused" || fail "'$1' is not in: $(cat "$TEST_DIR/refused")"
  kill -0 "$job" || fail "the job is gone: $(tail -5 "$TEST_DIR/err")"
}

# let_go_quietly MOVES: the job ends well; some ranks have no stream to say so.
let_go_quietly() {
  touch "$STOP"
  wait "$job" || fail "exit code $?: $(tail -5 "$TEST_DIR/err")"
  grep -q "^0 ended well: steps [0-9]* moves $1\$" "$TEST_DIR/out" || fail "rank 0: $(tail -2 "$TEST_DIR/out")"
}
