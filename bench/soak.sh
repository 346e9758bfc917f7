#!/bin/bash
# Many moves and faults in a row under a job that checks itself: does anything grow on any host?
# Jobs of 15 moves each (MPICH 4.2.1 has no room for many more sessions in one process), from random nodes to random
# free ones, every fourth with a fault: an order for a target that is none, an order twice, an order called off, or a
# node that nobody hears for a second. The lab is this bench's own.
set -euo pipefail
# shellcheck source=bench/lab.bash
source "$(dirname "${BASH_SOURCE[0]}")/lab.bash"
MOVES=200
MOVES_OF_A_JOB=15
SEED=1
while (($# > 0)); do
  case $1 in
    --json) JSON=${2:?--json needs a file} && shift 2 ;;
    --moves) MOVES=${2:?--moves needs a number} && shift 2 ;;
    --seed) SEED=${2:?--seed needs a number} && shift 2 ;;
    *) echo "usage: ./dev bench soak [--moves N] [--seed N] [--json FILE]" >&2 && exit 2 ;;
  esac
done
bench_lab soak 5
# shellcheck source=/dev/null
source "$CHECKOUT/tests/lab/lib.sh"
# shellcheck source=/dev/null
source "$CHECKOUT/tests/lab/move_lib.sh"
trap 'touch "$STOP"; wait || true; lab down >/dev/null; rm -rf "$TEST_DIR" "$STOP"' EXIT
RANDOM=$SEED
PATIENCE="link_timeout=5,launcher_grace=1,redial_silence=2,image_progress=3"
# shellcheck disable=SC2034 # move_lib.sh uses it
LAUNCH=(-timeouts "$PATIENCE")
began=$(date --iso-8601=seconds)

# Descriptors and memory in kB of the process on NODE that PATTERN matches.
sample() {
  # shellcheck disable=SC2016 # expanded on the node
  node "$1" bash -c 'pid=$(pgrep -o -f "$1") && echo "$(ls /proc/$pid/fd | wc -l) $(awk "/^VmRSS/ {print \$2}" /proc/$pid/status)"' _ "$2"
}

# What all nodes hold together while no job runs: namespaces, bytes in memory-backed file systems, processes.
footprint() {
  local name namespaces=0 bytes=0 processes=0 line
  for name in node1 node2 node3 node4 node5; do
    # shellcheck disable=SC2016 # expanded on the node
    line=$(node "$name" bash -c 'echo "$(readlink /proc/[0-9]*/ns/* 2>/dev/null | sort -u | wc -l) $(du -sxbc /dev/shm /tmp /run | tail -1 | cut -f1) $(ls -d /proc/[0-9]* | wc -l)"')
    read -r n b p <<<"$line"
    namespaces=$((namespaces + n)) bytes=$((bytes + b)) processes=$((processes + p))
  done
  echo "$namespaces $bytes $processes"
}

random_of() { local -a all=("$@") && echo "${all[RANDOM % $#]}"; }

# Where the job is not, but for the launcher's node.
free_nodes() {
  local used
  used=$(node $HEAD xmpictl status $JOB --json | jq -r '.slots[].node')
  printf '%s\n' node1 node2 node3 node5 | grep -vxF "$used"
}
used_nodes() { node $HEAD xmpictl status $JOB --json | jq -r '.slots[].node' | sort -u; }

# fault KIND FROM TO: the move with something in its way; it may fail, the job may not.
fault() {
  local from=$2 to=$3 order
  case $1 in
    nowhere) node $HEAD xmpictl evacuate $JOB "$from" --to nowhere --json >"$TEST_DIR/move.json" || true ;;
    twice)
      node $HEAD xmpictl evacuate $JOB "$from" --to "$to" --json >"$TEST_DIR/first.json" &
      order=$!
      node $HEAD xmpictl evacuate $JOB "$from" --json >"$TEST_DIR/move.json" || true
      wait $order || true
      ;;
    cancel)
      node $HEAD xmpictl evacuate $JOB "$from" --to "$to" --json >"$TEST_DIR/move.json" &
      order=$!
      node $HEAD xmpictl cancel $JOB >/dev/null 2>&1 || true
      wait $order || true
      ;;
    outage)
      node $HEAD xmpictl evacuate $JOB "$from" --to "$to" --json >"$TEST_DIR/move.json" &
      order=$!
      lab drop "$(random_of "$from" "$to")"
      sleep 1 # the fault itself lasts so long
      lab heal "$from" && lab heal "$to"
      wait $order || true
      ;;
  esac
}

moves=0 faults=0 jobs=0 tries=0 identical=true
: >"$TEST_DIR/samples"
node $HEAD xmpiexec -n 4 -ppn 2 -hosts node1,node2 witness -steps 20000 -trace 1 >"$TEST_DIR/reference"
footprint >"$TEST_DIR/footprints"
while ((moves < MOVES)); do
  jobs=$((jobs + 1))
  start 4 2 -pause 5000
  of_job=0
  while ((of_job < MOVES_OF_A_JOB && moves < MOVES)); do
    tries=$((tries + 1))
    mapfile -t used < <(used_nodes)
    mapfile -t free < <(free_nodes)
    from=$(random_of "${used[@]}") to=$(random_of "${free[@]}")
    if ((tries % 4 == 0)); then
      faults=$((faults + 1))
      fault "$(random_of nowhere twice cancel outage)" "$from" "$to"
    else
      node $HEAD xmpictl evacuate $JOB "$from" --to "$to" --json >"$TEST_DIR/move.json" ||
        fail "move $((moves + 1)) from $from to $to: $(cat "$TEST_DIR/move.json"); $(tail -3 "$TEST_DIR/err")"
    fi
    made=$(node $HEAD xmpictl status $JOB --json | jq .migrations)
    moves=$((moves + made - of_job)) of_job=$made
    echo "$jobs $made $(sample $HEAD '^xmpiexec')" >>"$TEST_DIR/samples"
    printf 'soak: job %d, %d of %d moves, %d faults\n' $jobs $moves "$MOVES" $faults >&2
  done
  finish >&2
  expected=$(awk -v steps="$(field steps)" '$1 == "sum" && $2 == steps {print $3}' "$TEST_DIR/reference")
  [[ $(field checksum) == "$expected" ]] || identical=false
  expect_clean node1 node2 node3 node5 $HEAD
  footprint >>"$TEST_DIR/footprints"
done

# Within a job: what the launcher holds, from its third move to its last. Between jobs: what the hosts hold.
"$CHECKOUT/bench/soak_report.py" "$TEST_DIR/samples" "$TEST_DIR/footprints" \
  "{\"moves\": $moves, \"faults\": $faults, \"jobs\": $jobs, \"identical\": $identical, \"command\": \"./dev bench soak --moves $MOVES --seed $SEED\", \"began\": \"$began\"}" >"$JSON"
