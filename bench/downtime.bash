# The parts of ./dev bench downtime: the parked processes that move the paper's way, the job that moves ours, and one
# move of each, told as JSON in $TEST_DIR/sample. $SAMPLES has a line of JSON for each that is kept. Sourced by
# downtime.sh, after lab.bash and tests/lab/lib.sh.
# shellcheck shell=bash

HEAD=node10 # has the launcher
JOB=churning
PARKED=/tmp/parked
STOP=$XMPI_BUILD/bench-$XMPI_LAB.stop # on all nodes; ends the job
# The links' rates as ./dev lab rate takes them.
# shellcheck disable=SC2034 # downtime.sh reads it
LINKS=(none 10gbit 1gbit)

# What distinguishes our methods is in the words of one command. A build without pre-copy has only the first.
declare -A WORDS=([plain]="")
OURS=(plain)
# shellcheck disable=SC2034 # downtime.sh reads them
learn_methods() {
  local words
  words=$(node $HEAD xmpictl evacuate --help)
  if [[ $words == *--no-precopy* ]]; then
    WORDS=([plain]=--no-precopy [precopy]="")
    OURS=(plain precopy)
  fi
  [[ $words != *--fast* ]] || WORDS[fast]=--fast
}

now_s() { echo "$EPOCHREALTIME"; }
sent_bytes() { node "$1" cat /sys/class/net/eth0/statistics/tx_bytes; }

# record LIST METHOD ROUND ROW SAMPLE: the last two are JSON objects.
record() {
  jq -cn --arg list "$1" --arg method "$2" --argjson round "$3" --argjson row "$4" --argjson sample "$5" \
    '{list: $list, method: $method, round: $round, row: $row} + $sample' >>"$SAMPLES"
  jq -r '"  \(.method) \(.round): moved in \(.move_ms | round) ms" +
    if .downtime_ms then ", downtime \(.downtime_ms | round) ms" else "" end' \
    <<<"$(tail -1 "$SAMPLES")" >&2
}

# ---- the paper's method

# park COUNT MIB: parked processes on node1. Their PIDs, which CRIU restores, are free on other nodes.
park() {
  PAPER_AT=node1
  local name
  for name in node1 node2; do node $name mkdir -p $PARKED; done
  # shellcheck disable=SC2016 # expanded on the node
  mapfile -t PAPER_PIDS < <(node node1 timeout 300 bash -c '
    set -e
    echo 30000 >/proc/sys/kernel/ns_last_pid
    for ((i = 0; i < $1; ++i)); do
      setsid churn -memory "$2" -park "$3/$i" </dev/null >/dev/null 2>&1 &
    done
    while (($(cat "$3"/* 2>/dev/null | grep -c ^parked) < $1)); do sleep 0.05; done
    sed "s/^parked //" "$3"/*' _ "$1" "$2" $PARKED)
  ((${#PAPER_PIDS[@]} == $1)) || fail "$1 processes of $2 MiB do not start on node1"
}

# unpark: each has all of its memory.
unpark() {
  local name
  # shellcheck disable=SC2016 # expanded on the node
  node "$PAPER_AT" timeout 60 bash -c '
    kill -TERM "${@:2}"
    while (($(cat "$1"/* 2>/dev/null | grep -c ^checksum) < $# - 1)); do sleep 0.05; done' _ $PARKED "${PAPER_PIDS[@]}" ||
    fail "not all processes moved the paper's way have the memory that they had"
  for name in node1 node2; do node $name rm -rf $PARKED; done
}

# move_paper: one move. The job, which shares the cores, stands still meanwhile.
move_paper() {
  local to=node2
  [[ $PAPER_AT == node1 ]] || to=node1
  stop_job
  node "$PAPER_AT" bash "$CHECKOUT/bench/paper_move.bash" $to "${PAPER_PIDS[@]}" >"$TEST_DIR/sample"
  PAPER_AT=$to
  continue_job
}

# ---- ours

# start_job HOSTS RANKS LARGE MIB REWRITE: in the background; returns once it computes.
start_job() {
  rm -f "$STOP"
  : >"$TEST_DIR/out"
  JOB_HOSTS=$(sed 's/:[0-9]*//g; s/,/ /g' <<<"$1")
  JOB_AT=node1
  node $HEAD xmpiexec -job $JOB -n "$2" -hosts "$1" churn -memory "$4" -large "$3" -rewrite "$5" \
    -until "$STOP" </dev/null >"$TEST_DIR/out" 2>"$TEST_DIR/err" &
  job=$!
  continued=$(now_s)
  await_steps 0
}

finish_job() {
  local status=0
  touch "$STOP"
  wait "$job" || status=$?
  expect_eq "$status" 0 "exit code of the job; $(tail -5 "$TEST_DIR/err")"
  grep -q checksum "$TEST_DIR/out" || fail "the job ended without a checksum"
}

signal_job() {
  local name
  for name in $JOB_HOSTS node2; do node "$name" pkill "-$1" -x churn || true; done
}
stop_job() { signal_job STOP; }
continue_job() { signal_job CONT && continued=$(now_s); }

# await_steps SECONDS: until the job has computed for so long since it was last let go on, and had checked its memory.
# shellcheck disable=SC2016 # awk's
await_steps() {
  wait_for 120 awk -v since="$continued" -v least="$1" \
    '$1 == "step" && $3 > since {if (!first) first = $3; last = $3} END {exit !(last > first + least)}' "$TEST_DIR/out"
}

# steps_per_s FROM TO: between the first and the last line of that time; null when there are not two.
steps_per_s() {
  awk -v from="$1" -v to="$2" '
    $1 == "step" && $3 >= from && $3 <= to {if (!n++) {s = $2; t = $3} s2 = $2; t2 = $3}
    END {if (n > 1 && t2 > t) print (s2 - s) / (t2 - t); else print "null"}' "$TEST_DIR/out"
}

# move_ours METHOD: one move of the job's first slot.
move_ours() {
  local to=node2 ordered sent before during
  [[ $JOB_AT == node1 ]] || to=node1
  await_steps 1
  before=$continued
  sent=$(sent_bytes "$JOB_AT")
  ordered=$(now_s)
  evacuate "$1" "$JOB_AT" $to "$TEST_DIR/answer"
  sent=$(($(sent_bytes "$JOB_AT") - sent))
  continued=$(now_s)
  during=$(jq ".phases_ms.prepare / 1000 + $ordered" "$TEST_DIR/answer")
  jq --argjson link "$sent" --argjson before "$(steps_per_s "$before" "$ordered")" \
    --argjson during "$(steps_per_s "$ordered" "$during")" '
    del(.ranks) + {link_bytes: $link, steps_per_s: {before: $before, during_prepare: $during}}' \
    "$TEST_DIR/answer" >"$TEST_DIR/sample"
  JOB_AT=$to
}

# evacuate METHOD FROM TO FILE: the answer in FILE.
evacuate() {
  # shellcheck disable=SC2086 # a list of words
  node $HEAD xmpictl evacuate $JOB "$2" --to "$3" ${WORDS[$1]} --json >"$4" ||
    fail "evacuate $2 --to $3 ($1): $(cat "$4"); $(tail -5 "$TEST_DIR/err")"
}

# ---- the machine by itself

# measure_link LINK: what one connection from node1 to node2 carries, plain and sealed.
measure_link() {
  local kind rate
  set_link "$1"
  for kind in "" tls; do
    # shellcheck disable=SC2086 # nothing is no word
    node node2 rates receive 5300 $kind >"$TEST_DIR/rate" &
    # shellcheck disable=SC2086
    node node1 rates send node2 5300 3 $kind
    wait $!
    rate=$(jq .link_bytes_per_s "$TEST_DIR/rate")
    jq -cn --arg link "$1" --arg kind "${kind:-tcp}" --argjson rate "$rate" \
      '{list: "rates", link: $link, ($kind + "_bytes_per_s"): $rate}' >>"$SAMPLES"
  done
}

# A pass over memory with as many readers as any row has ranks and this machine has cores; sealing on one core.
measure_cores() {
  local threads
  for threads in 1 2 4 8 16; do
    ((threads <= $(nproc))) || break
    node node1 rates pass $threads 256 | jq -c --argjson n $threads '{list: "pass", threads: $n} + .' >>"$SAMPLES"
  done
  node node1 rates seal | jq -c '{list: "seal"} + .' >>"$SAMPLES"
}

set_link() {
  local name
  for name in node1 node2; do lab rate $name "$1"; done
}

# measure_criu ROUNDS: plain dump and restore of one process of 256 MiB on one host.
measure_criu() {
  local round
  park 1 256
  for ((round = 0; round <= $1; ++round)); do
    # shellcheck disable=SC2016 # expanded on the node
    node node1 bash -c '
      set -e
      now_us() { echo "${EPOCHREALTIME/[.,]/}"; }
      mkdir /tmp/images && cd /tmp/images
      a=$(now_us) && criu dump -t "$1" -o dump.log >/dev/null 2>&1
      b=$(now_us) && criu restore -d -o restore.log >/dev/null 2>&1
      echo "{\"list\": \"criu\", \"round\": $2, \"dump_ms\": $(((b - a) / 1000)), \"restore_ms\": $((($(now_us) - b) / 1000))}"
      rm -rf /tmp/images' _ "${PAPER_PIDS[0]}" $round >>"$SAMPLES"
  done
  unpark
}
