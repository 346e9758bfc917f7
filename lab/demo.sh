#!/bin/bash
# ./dev demo: a real MPI job leaves a node and goes on. Runs heat2d twice over the nodes of a small lab, once
# undisturbed and once with node1 evacuated in the middle, and compares every bit of the results.
# Runs inside the base with everything built; the lab is taken down at the end, whatever happens.
set -euo pipefail
CHECKOUT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# Its own in each checkout, so that two can try at once; never the lab that the user works with.
XMPI_LAB=demo-$(sha256sum <<<"$CHECKOUT" | head -c 6)
export XMPI_LAB
RESULTS=$CHECKOUT/results/local/demo
JSON=""
STEPS=12000

usage() {
  echo "usage: ./dev demo [--json FILE] [--steps N], N from 1200 to 1048576" >&2
  exit 2
}
while (($# > 0)); do
  (($# > 1)) || usage
  case $1 in
    --json) JSON=$2 ;;
    --steps) STEPS=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[[ $STEPS =~ ^[1-9][0-9]{3,6}$ ]] || usage
((STEPS >= 1200 && STEPS <= 1048576)) || usage

say() { printf '\n== %s\n' "$*"; }
die() {
  printf 'demo: %s\n' "$*" >&2
  exit 1
}
lab() { "$CHECKOUT/dev" lab "$@"; }
# The launcher runs on node4, which has no rank: it must outlive the node that is left.
on_head() { "$CHECKOUT/dev" lab exec node4 env XMPI_LOG_DIR="$RESULTS" "$@"; }

# run NAME: the job with its output on the terminal and in NAME.out.
run() {
  on_head xmpiexec -job "$1" -n 8 -ppn 4 -hosts node1,node2 -spares node3 -genvall \
    heat2d -size 1024 -steps "$STEPS" -print-every $((STEPS / 12)) -o "$RESULTS/$1.pgm" |
    tee "$RESULTS/$1.out"
}

checksum() { awk '$1 == "checksum" { print $2 }' "$RESULTS/$1.out"; }

# Waits until the job has written its COUNT-th line of progress, so that the move falls into the middle.
wait_for_progress() {
  local deadline=$((SECONDS + 120))
  until (($(grep -c '^step' "$RESULTS/moved.out" 2>/dev/null || true) >= $1)); do
    ((SECONDS < deadline)) || die "the job made no progress within 120 s; its output is in $RESULTS/moved.out"
    sleep 0.1
  done
}

mkdir -p "$RESULTS"
exec {LOCK}<"$RESULTS"
flock -n "$LOCK" || die "another demo of this checkout is under way"
rm -f "$RESULTS"/{plain,moved}* "$RESULTS/evacuate.json"
trap 'lab down >/dev/null' EXIT
lab up -n 4

say "The job undisturbed: 8 ranks, 4 on node1 and 4 on node2"
run plain

say "The same job again; node1 is evacuated in the middle"
run moved &
JOB=$!
wait_for_progress 5
say "xmpictl evacuate moved node1"
on_head xmpictl status moved
on_head xmpictl evacuate moved node1 --json >"$RESULTS/evacuate.json" || {
  cat "$RESULTS/evacuate.json" >&2
  die "the move failed; the event log is in $RESULTS"
}
on_head xmpictl status moved
wait "$JOB" || die "the moved job failed with code $?; the event log is in $RESULTS"

say "What happened"
"$CHECKOUT/lab/demo_report.py" "$RESULTS" "$(checksum plain)" "$(checksum moved)" ${JSON:+"$JSON"}
