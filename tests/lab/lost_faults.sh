#!/bin/bash
# Whatever fails in a migration, at whatever moment: the job goes on, here or there, to the same bits, or it ends at
# once with a message that names what is lost; nothing hangs, nothing is left on any node. One line a fault:
#   POINT  HOLDER  FAULT  ACTOR  END  [WORDS that must be said]
# FAULTs that HOLDER's proxy makes itself at POINT: error, crash, cut, corrupt, full. For all others it stands still at
# POINT until the script has done it to ACTOR: kill (power off), drop (its packets vanish), outage (for 2 s), freeze, proxy (kill -9 of
# xmpi-proxy), rank (kill -9 of one rank), cancel (by the operator). docs/testing.md has the same table.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$CHECKOUT/tests/lab/move_lib.sh"
source "$CHECKOUT/tests/lab/lost_lib.sh"

table() {
  sed -n '/^<!-- lost_faults -->/,/^<!-- end -->/p' "$CHECKOUT/docs/testing.md" | grep '^| [a-z]*\.[a-z]* ' |
    tr -d '`' | sed 's/^| *//; s/ *| */|/g'
}

node_of() {
  case $1 in
    source) echo node1 ;;
    other) echo node2 ;;
    target) echo node3 ;;
    launcher) echo launcher ;;
    *) fail "who is '$1'?" ;;
  esac
}

# strike FAULT NODE
strike() {
  struck=("$1" "$2")
  case $1 in
    kill | drop | freeze) lab "$1" "$2" ;;
    outage)
      lab drop "$2"
      touch "$RELEASE"
      sleep 2 # the fault itself, shorter than link_timeout
      lab heal "$2"
      ;;
    proxy)
      node "$2" pkill -9 -x xmpi-proxy
      # After handover nobody asks for the originals' proxy.
      [[ $point == reconnect.* ]] || wait_for 10 grep -q proxy.lost "$EVENTS"
      ;;
    rank) node "$2" sh -c 'kill -9 $(pgrep -x witness | head -1)' ;;
    cancel) node $HEAD xmpictl cancel $JOB >"$TEST_DIR/cancel" 2>&1 || true ;;
    *) fail "what is '$1'?" ;;
  esac
}
struck=(none "")
repair() {
  case ${struck[0]} in
    kill) lab start "${struck[1]}" ;;
    drop | outage) lab heal "${struck[1]}" ;;
    freeze) lab thaw "${struck[1]}" ;;
  esac
  struck=(none "")
}
trap 'repair; touch "$STOP" "$RELEASE"; wait || true; rm -rf "$TEST_DIR" "$STOP" "$RELEASE" "$EVENTS"' EXIT

run_row() {
  local point=$1 holder=$2 fault=$3 actor=$4 end=$5 words=$6
  step "$point: $holder, $fault $actor -> $end"
  holder=$(node_of "$holder")
  case $fault in
    error | crash | cut | corrupt | full)
      begin "$holder@$point:$fault"
      evacuate node1
      ;;
    *)
      [[ $fault == cancel ]] || actor=$(node_of "$actor")
      begin "$holder@$point:hold=$RELEASE"
      evacuate node1
      wait_for 60 reached "$point"
      strike "$fault" "$actor"
      touch "$RELEASE"
      ;;
  esac
  case $end in
    moves) moved_to node3 ;;
    elsewhere) moved_to node5 ;;
    stays) stays "$words" ;;
    ends) ends "$words" ;;
    *) fail "what is '$end'?" ;;
  esac
  repair
  # What kill -9 leaves of a launcher goes with the next look at it.
  [[ $holder != launcher ]] || expect_eq "$(node $HEAD xmpictl list)" "no job of yours runs on this host"
  expect_clean node1 node2 node3 node5 $HEAD
}

# chosen ROW...: a usual run takes the first line of each point and end, XMPI_TEST_LONG all, XMPI_LOST_ONLY what it names.
declare -A run_before=()
chosen() {
  local kind="$1 $5"
  [[ -z ${XMPI_LOST_ONLY:-} ]] || { [[ "$1 $2 $3 $4" == *$XMPI_LOST_ONLY* ]] && return || return 1; }
  [[ -z ${XMPI_TEST_LONG:-} ]] || return 0
  [[ -z ${run_before[$kind]:-} ]] || return 1
  run_before[$kind]=yes
}

step "the reference"
make_reference 3000
rows=0
while IFS='|' read -r point holder fault actor end words; do
  chosen "$point" "$holder" "$fault" "$actor" "$end" || continue
  run_row "$point" "$holder" "$fault" "$actor" "$end" "$words" </dev/null
  rows=$((rows + 1))
done < <(table)
((rows > 0)) || fail "no rows in docs/testing.md"
step "$rows faults"
