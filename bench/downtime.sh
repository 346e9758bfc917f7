#!/bin/bash
# How long a node's ranks stand still while they leave it, against the paper's method (CRIU to files, scp, CRIU).
# Both move the same memory over the same link between the same two nodes and take turns, after a warm-up each. The
# paper's method moves processes that are parked already (paper_move.bash): quiesce and reconnect are the same for
# both, so what is compared is the move time. Each move goes back where the last one came from. The lab is this
# bench's own; downtime_report.py makes the medians and says what they mean.
set -euo pipefail
# shellcheck source=bench/lab.bash
source "$(dirname "${BASH_SOURCE[0]}")/lab.bash"
ROUNDS=5
QUICK=""
CROSS=""
SCALE=1
DONE=""
WORDS_GIVEN="$*"
usage() {
  cat >&2 <<'END'
usage: ./dev bench downtime [--json FILE] [--quick] [--cross] [--rounds N] [--shrink N]
  --quick   the three headline rows only       --rounds N  moves of each method after the warm-up (5)
  --cross   every row of the grid's product    --shrink N  with an N-th of the memory, to try the bench itself
END
  exit 2
}
while (($# > 0)); do
  case $1 in
    --json) JSON=${2:?--json needs a file} && shift 2 ;;
    --quick) QUICK=yes && shift ;;
    --cross) CROSS=yes && shift ;;
    --rounds) ROUNDS=${2:?--rounds needs a number} && shift 2 ;;
    --shrink) SCALE=${2:?--shrink needs a number} && shift 2 ;;
    *) usage ;;
  esac
done
# MPICH 4.2.1 has no room for many more than 15 sessions in one process: two methods take turns in one job.
[[ $ROUNDS =~ ^[1-6]$ && $SCALE =~ ^[1-9][0-9]?$ ]] || usage
bench_lab downtime 10
# shellcheck source=/dev/null
source "$CHECKOUT/tests/lab/lib.sh"
# shellcheck source=bench/downtime.bash
source "$CHECKOUT/bench/downtime.bash"
# shellcheck source=bench/node_memory.bash
source "$CHECKOUT/bench/node_memory.bash"
SAMPLES=$TEST_DIR/samples
trap 'clean_up' EXIT
SECONDS=0

# A run of an hour that fails leaves what it had measured beside its JSON.
clean_up() {
  touch "$STOP"
  lab down >/dev/null
  memory_unwatch
  wait || true
  [[ -n $DONE || ! -s $SAMPLES || $JSON == /dev/* ]] || cp "$SAMPLES" "${JSON%.json}.samples.jsonl"
  rm -rf "$TEST_DIR" "$STOP"
}

say() { printf '== %4d s  %s\n' $SECONDS "$*" >&2; }

# The memory of a row in MiB, and the row as JSON, by which its samples are found.
scaled() { echo $(($1 / SCALE > 0 ? $1 / SCALE : 1)); }
row() {
  jq -cn --argjson r "$1" --argjson m "$2" --argjson w "$3" --arg l "$4" \
    '{ranks: $r, memory_mib: $m, rewrite_percent_per_s: $w, link: $l}'
}

# In memory there are at most the job's ranks, the parked ones, and two more of either: images or copies. And a rest.
fits() { (($1 * $2 * 1024 * 9 / 2 < $(awk '$1 == "MemAvailable:" {print $2}' /proc/meminfo))); }

# take_turns LIST ROW METHOD...: ROUNDS moves of each after a warm-up; who goes first changes.
take_turns() {
  local list=$1 row=$2 round order i
  shift 2
  for ((round = 0; round <= ROUNDS; ++round)); do
    for ((i = 1; i <= $#; ++i)); do
      order=$((round % 2 == 0 ? i : $# + 1 - i))
      if [[ ${!order} == paper ]]; then move_paper; else move_ours "${!order}"; fi
      record "$list" "${!order}" $round "$row" "$(<"$TEST_DIR/sample")"
    done
  done
}

# compare RANKS MEMORY REWRITE LINK: a row of the grid.
compare() {
  local row memory
  memory=$(scaled "$2")
  row=$(row "$1" "$memory" "$3" "$4")
  say "$row"
  if ! fits "$1" "$memory"; then
    jq -cn --argjson row "$row" '{list: "skipped", row: $row, why: "not enough memory on this machine"}' >>"$SAMPLES"
    return
  fi
  set_link "$4"
  park "$1" "$memory"
  start_job "node1:$1,node3:1" $(($1 + 1)) "$1" "$memory" "$3"
  take_turns grid "$row" paper "${OURS[@]}"
  finish_job
  unpark
}

# The grid: two planes through the headline's point, or all of the product.
grid() {
  local ranks memory rewrite link
  for link in "${LINKS[@]}"; do
    for rewrite in 0 5 50 100; do
      for ranks in 1 2 4 8 16; do
        for memory in 16 64 256; do
          if [[ -n $CROSS || ($link == none && $rewrite == 5) || ($ranks == 4 && $memory == 256) ]]; then
            compare $ranks $memory $rewrite "$link"
          fi
        done
      done
    done
  done
}

# Move time must not grow with the number of nodes that stay.
staying() {
  local count hosts row memory
  memory=$(scaled 64)
  set_link none
  for count in 2 3 4 5 6 7; do
    say "$count nodes stay"
    hosts=$(printf ',node%d:2' $(seq 3 $((count + 2))))
    row=$(row 2 "$memory" 5 none | jq -c ". + {staying: $count}")
    start_job "node1:2$hosts" $((2 * count + 2)) 2 "$memory" 5
    take_turns staying "$row" "${OURS[@]: -1}"
    finish_job
  done
}

# move_slots COUNT: the first COUNT slots of the job, each to its own other node, in one migration.
move_slots() {
  local here=(node1 node3 node4 node5) there=(node2 node6 node7 node8) i swap orders=()
  for ((i = 0; i < $1; ++i)); do
    if [[ ${SLOT_AWAY[i]:-} == yes ]]; then
      swap=${here[i]} here[i]=${there[i]} there[i]=$swap SLOT_AWAY[i]=""
    else
      SLOT_AWAY[i]=yes
    fi
  done
  await_steps 1
  for ((i = 0; i < $1; ++i)); do
    evacuate "${OURS[-1]}" "${here[i]}" "${there[i]}" "$TEST_DIR/answer$i" &
    orders+=($!)
  done
  for i in "${orders[@]}"; do wait "$i"; done
  continued=$(now_s)
  # Orders that came too late to join are a migration of their own: then there is nothing to compare.
  jq -s 'if ([.[].migration] | unique | length) > 1 then {} else
    {move_ms: ([.[].move_ms] | max), downtime_ms: ([.[].downtime_ms] | max)} end' \
    "$TEST_DIR"/answer[0-9] >"$TEST_DIR/sample"
  rm "$TEST_DIR"/answer[0-9]
}

slots() {
  local memory round count
  memory=$(scaled 64)
  SLOT_AWAY=()
  set_link none
  say "four slots at once, and one"
  start_job node1:2,node3:2,node4:2,node5:2,node9:1 9 8 "$memory" 5
  for ((round = 0; round <= ROUNDS; ++round)); do
    for count in 1 4; do
      move_slots $count
      [[ $(<"$TEST_DIR/sample") == "{}" ]] ||
        record slots "${OURS[-1]}" $round "$(row 2 "$memory" 5 none | jq -c ". + {slots: $count}")" "$(<"$TEST_DIR/sample")"
    done
  done
  finish_job
}

# What a move takes on both nodes beyond the ranks' own memory, which comes to the target in any case.
memory_peaks() {
  local method memory round
  memory=$(scaled 256)
  set_link none
  say "memory on both nodes during a move"
  memory_watch node1 node2
  start_job node1:4,node3:1 5 4 "$memory" 5
  for ((round = 0; round <= ROUNDS; ++round)); do
    for method in "${OURS[@]}"; do
      memory_begin
      move_ours "$method"
      memory_end "$JOB_AT"
      record memory "$method" $round "$(row 4 "$memory" 5 none)" \
        "$(jq --argjson peaks "$(<"$TEST_DIR/peaks")" '. + $peaks | .target_extra_bytes -= .image_bytes' "$TEST_DIR/sample")"
    done
  done
  finish_job
  memory_unwatch
}

# Ranks that run before their memory has come.
fast() {
  local memory
  set_link none
  for memory in 64 512; do
    memory=$(scaled $memory)
    start_job node1:4,node3:1 5 4 "$memory" 5
    take_turns fast "$(row 4 "$memory" 5 none)" plain fast
    finish_job
  done
}

learn_methods
say "the machine by itself"
for link in "${LINKS[@]}"; do measure_link "$link"; done
measure_cores
set_link none
measure_criu "$ROUNDS"
if [[ -n $QUICK ]]; then
  compare 4 256 5 none
  compare 4 256 5 1gbit
else
  grid
  staying
  slots
  memory_peaks
  [[ -z ${WORDS[fast]+x} ]] || fast
fi
say "all measured"
"$CHECKOUT/bench/downtime_report.py" "$SAMPLES" "./dev bench downtime $WORDS_GIVEN" >"$TEST_DIR/report"
cat "$TEST_DIR/report" >"$JSON"
[[ ! -f $JSON ]] || "$CHECKOUT/bench/downtime_plots.py" "$JSON"
DONE=yes
