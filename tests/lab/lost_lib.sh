# What the lost_*.sh scripts share: a job that moves while something is made to fail at a named place. Sourced after
# lib.sh and move_lib.sh. The job runs from node4 on node1 and node2; node3 is the target, node5 the next one.
# shellcheck shell=bash

RELEASE=$XMPI_BUILD/tests/lost.release
EVENTS=$XMPI_BUILD/tests/lost.events
# Silence is found within 6 s here rather than 12.
PATIENCE="link_timeout=5,launcher_grace=1,redial_silence=2,image_progress=3"
trap 'touch "$STOP" "$RELEASE"; wait || true; rm -rf "$TEST_DIR" "$STOP" "$RELEASE" "$EVENTS"' EXIT

# What an undisturbed job's ranks hold after any number of steps.
make_reference() {
  node $HEAD xmpiexec -n 4 -ppn 2 -hosts node1,node2 witness -steps "$1" -trace 1 >"$TEST_DIR/reference"
}

# expect_same_bits: the job that has finished holds them, too.
expect_same_bits() {
  local steps expected
  steps=$(field steps)
  expected=$(awk -v steps="$steps" '$1 == "sum" && $2 == steps {print $3}' "$TEST_DIR/reference")
  [[ -n $expected ]] || fail "no reference for $steps steps"
  expect_eq "$(field checksum)" "$expected" "the checksum after $steps steps"
}

# begin FAULT: the job, with every proxy and the launcher armed.
begin() {
  rm -f "$RELEASE" "$EVENTS"
  start_env=(env "XMPI_FAULT=$1")
  LAUNCH=(-spares "node3,node5" -timeouts "$PATIENCE" -event-log "$EVENTS")
  start 4 2 -pause 10000 -lines 1
}

# evacuate ARG...: in the background; its answer is awaited by `answered`.
evacuate() {
  timeout 120 "$CHECKOUT/dev" lab exec $HEAD xmpictl evacuate $JOB "$@" --json >"$TEST_DIR/answer" 2>&1 &
  order=$!
}

reached() { grep -q "fault.hit point=$1" "$TEST_DIR/err"; }

# answered CODE: the order has ended with it.
answered() {
  local status=0
  wait "$order" || status=$?
  expect_eq "$status" "$1" "exit code of evacuate, which said $(cat "$TEST_DIR/answer"); $(tail -5 "$TEST_DIR/err")"
}

goes_on() {
  local before
  before=$(lines_of 0)
  wait_for 30 more_lines_than "$before"
  finish
  expect_lines 4
  expect_same_bits
}

# The four ends. moved_to NODE; stays WORDS; ends WORDS.
moved_to() {
  answered 0
  expect_eq "$(jq -r .to "$TEST_DIR/answer")" "$1" "target"
  goes_on
}
stays() {
  answered 1
  grep -qi -- "$1" "$TEST_DIR/answer" || fail "'$1' is not in: $(cat "$TEST_DIR/answer")"
  goes_on
}
ends() {
  local status=0 began=$SECONDS
  answered 1
  wait "$job" || status=$?
  ((status != 0)) || fail "the job says that all is well"
  ((SECONDS - began <= 20)) || fail "the job took $((SECONDS - began)) s to end after its migration had"
  grep -q -- "$1" "$TEST_DIR/err" || fail "'$1' is not in: $(cat "$TEST_DIR/err")"
}
