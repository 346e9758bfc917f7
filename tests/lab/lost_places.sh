#!/bin/bash
# Several slots at once, each to its own node and all to one; orders that come twice, or for the node that is just the
# target; and back. After each, every rank's place is right: host name, PMI's view of the job, universe, cores.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$CHECKOUT/tests/lab/move_lib.sh"
source "$CHECKOUT/tests/lab/lost_lib.sh"

begin_seats() {
  rm -f "$STOP" "$RELEASE"
  node $HEAD env "XMPI_FAULT=${1-}" xmpiexec -job $JOB -n 4 -ppn 2 -hosts node1,node2 -spares node3,node5 \
    -bind-to core seat "$STOP" </dev/null >"$TEST_DIR/out" 2>"$TEST_DIR/err" &
  job=$!
  moves=0
  wait_for 60 reported
  mapping=$(seat_of 0 mapping)
}
reported() { (($(grep -c "^seat [0-9]* $moves " "$TEST_DIR/out" || true) == 4)); }
# seat_of RANK NAME: from its last line.
seat_of() {
  grep "^seat $1 $moves " "$TEST_DIR/out" | awk -v name="$2" '{for (i = 4; i < NF; ++i) if ($i == name) print $(i + 1)}'
}
place_of() { node $HEAD xmpictl status $JOB --json | jq -r ".slots[$1].node"; }

# seated NODE NODE: one more move has happened, and slots 0 and 1 are there now.
seated() {
  local rank node nodes=("$1" "$2")
  moves=$((moves + 1))
  wait_for 30 reported
  for rank in 0 1 2 3; do
    node=${nodes[rank / 2]}
    expect_eq "$(place_of $((rank / 2)))" "$node" "the place of slot $((rank / 2))"
    expect_eq "$(seat_of $rank host)" "$node" "host of rank $rank"
    expect_eq "$(seat_of $rank pmi)" "$node" "PMI_HOSTNAME of rank $rank"
    expect_eq "$(seat_of $rank mapping)" "$mapping" "PMI_process_mapping of rank $rank"
    expect_eq "$(seat_of $rank universe)" 4 "universe size of rank $rank"
    expect_eq "$(seat_of $rank node)" 2 "ranks on the node of rank $rank"
  done
  (($(nproc) >= 2)) || return 0
  for rank in 0 2; do
    [[ $(seat_of $rank cpus) != "$(seat_of $((rank + 1)) cpus)" ]] || fail "ranks $rank and $((rank + 1)) share a core"
  done
}
# evacuated NODE... [--to NODE]: it works. migrations: as what numbers.
evacuated() {
  evacuate "$@"
  answered 0
}
migrations() { jq -c '[.] | flatten | map(.migration) | unique' "$TEST_DIR/answer"; }
over() {
  touch "$STOP"
  wait "$job" || fail "the job failed: $(tail -5 "$TEST_DIR/err")"
  expect_clean node1 node2 node3 node5 $HEAD
}

step "both slots, each to its own spare, in one migration"
begin_seats
evacuated node1 node2
expect_eq "$(migrations)" "[1]" "the migrations"
seated "$(jq -r '.[0].to' "$TEST_DIR/answer")" "$(jq -r '.[1].to' "$TEST_DIR/answer")"
[[ $(place_of 0) != "$(place_of 1)" ]] || fail "both are on $(place_of 0)"
step "and both onto one node"
evacuated node3 node5 --to node1
seated node1 node1
step "two slots leave one node"
evacuated node1 --to node2
seated node2 node2
over

step "onto a node that hosts a slot, and back"
begin_seats
evacuated node1 --to node2
seated node2 node2
evacuated node2 --to node1
seated node1 node1
over

step "an order that comes twice is one"
begin_seats "node3@prepare.before:hold=$RELEASE"
evacuate node1
first=$order
wait_for 60 reached prepare.before
timeout 120 "$CHECKOUT/dev" lab exec $HEAD xmpictl evacuate $JOB node1 --json >"$TEST_DIR/second" 2>&1 &
second=$!
both_ordered() { (($(node $HEAD pgrep -cx xmpictl || true) == 2)); }
wait_for 20 both_ordered
touch "$RELEASE"
wait $second || fail "the second order failed: $(cat "$TEST_DIR/second")"
order=$first
answered 0
expect_eq "$(jq .migration "$TEST_DIR/second")" "$(jq .migration "$TEST_DIR/answer")" "the second order's migration"
seated node3 node2
expect_eq "$(node $HEAD xmpictl status $JOB --json | jq .migrations)" 1 "migrations"
over

step "an order for the node that is the target: another one is chosen"
begin_seats "node3@prepare.before:hold=$RELEASE"
evacuate node1
first=$order
wait_for 60 reached prepare.before
timeout 120 "$CHECKOUT/dev" lab exec $HEAD xmpictl evacuate $JOB node3 --json >"$TEST_DIR/second" 2>&1 &
second=$!
chosen() { [[ $(node $HEAD xmpictl status $JOB --json | jq -r '.migration.moves[0].to') == node5 ]]; }
wait_for 20 chosen
touch "$RELEASE"
wait $second || fail "the order for the target failed: $(cat "$TEST_DIR/second")"
order=$first
answered 0
seated node5 node2
over
