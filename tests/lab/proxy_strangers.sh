#!/bin/bash
# Strangers come to the image port before the source does: with the wrong secret, with no TLS at all, with garbage,
# with nothing. None gets in, and the move is not disturbed.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$CHECKOUT/tests/lab/move_lib.sh"

image_port() { node node3 ss -Hltnp | awk '/xmpi-proxy/ {sub(".*:", "", $4); print $4; exit}'; }
image_port_is_open() { [[ -n $(image_port) ]]; }

LAUNCH=(-timeouts "link_timeout=60")
trap 'lab thaw node1; touch "$STOP"; wait || true; rm -rf "$TEST_DIR" "$STOP"' EXIT
start 4 2 -pause 2000 -lines 1
step "a source that stands still, so that the candidate waits for it"
lab freeze node1
node $HEAD xmpictl evacuate $JOB node1 --to node3 --json >"$TEST_DIR/move.json" 2>&1 &
evacuate=$!
wait_for 20 image_port_is_open
port=$(image_port)
address=$(node node2 getent hosts node3 | awk '{print $1}')
listening=$(node node3 ss -Hltn "sport = :$port" | awk '{print $4}')
expect_eq "$listening" "$address:$port" "the one address that the image port is bound to"

step "strangers at $address port $port"
node node2 timeout 5 openssl s_client -connect "$address:$port" -tls1_3 -psk_identity "$JOB/0/image/1.1" \
  -psk "$(printf '%064d' 7)" </dev/null >"$TEST_DIR/wrong" 2>&1 && fail "the wrong secret was let in"
node node2 timeout 5 openssl s_client -connect "$address:$port" -tls1_3 </dev/null >"$TEST_DIR/none" 2>&1 &&
  fail "a stranger without a secret was let in"
# These may be cut off while they still write.
node node2 timeout 5 bash -c "printf 'GET / HTTP/1.0\r\n\r\n' >/dev/tcp/$address/$port" || true
node node2 timeout 5 bash -c "head -c 100000 /dev/urandom >/dev/tcp/$address/$port" || true
node node2 timeout 20 bash -c "exec 9<>/dev/tcp/$address/$port; sleep 10" & # says nothing
grep -qi "alert" "$TEST_DIR/wrong" || fail "no alert: $(cat "$TEST_DIR/wrong")"

step "the source goes on"
lab thaw node1

wait "$evacuate" || fail "the move failed: $(cat "$TEST_DIR/move.json")"
jq -e .ok "$TEST_DIR/move.json" >/dev/null || fail "$(cat "$TEST_DIR/move.json")"
finish
expect_eq "$(field rebuilt)" 1 "rebuilds"
expect_lines 4
expect_same_result 4 2
