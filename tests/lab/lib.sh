# For tests with real hosts. Sourced first by each script that xmpi_lab_test registers; such a script runs
# inside the base as root, ends with 0 when all it promised held, and reaches the run's shared lab (node1,
# node2, ...) by the functions here. ./dev test names that lab in XMPI_LAB. No test sleeps to wait for
# something: wait_for has a deadline.
# shellcheck shell=bash

set -euo pipefail
CHECKOUT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
[[ -n ${XMPI_LAB:-} ]] || {
  echo "this needs the lab of a test run: ./dev test -R NAME" >&2
  exit 1
}
TEST_DIR=$(mktemp -d /tmp/xmpi-test.XXXXXX)
trap 'rm -rf "$TEST_DIR"' EXIT
# No command fails without a word.
set -E
trap 'printf "FAIL %s:%s: status %s: %s\n" "${BASH_SOURCE[0]##*/}" "$LINENO" "$?" "$BASH_COMMAND" >&2' ERR

# A line per step with the seconds since the start, so that a log tells how far a test came.
step() { printf '== %3d s  %s\n' "$SECONDS" "$*"; }

fail() {
  printf 'FAIL %s:%s: %s\n' "${BASH_SOURCE[1]##*/}" "${BASH_LINENO[0]}" "$*" >&2
  exit 1
}

lab() { "$CHECKOUT/dev" lab "$@"; }

# node NODE CMD...: CMD on NODE; its stdio and exit code are CMD's.
node() { "$CHECKOUT/dev" lab exec "$@"; }

# status_of NODE FIELD: running, frozen or dead; up, cut or drop; ...
status_of() { lab status --json | jq -r --arg node "$1" ".nodes[] | select(.name == \$node).$2"; }

# wait_for SECONDS CMD...: until CMD succeeds; fails the test, naming CMD, when it has not by then.
wait_for() {
  local seconds=$1 deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < deadline)) || fail "not within $seconds s: $*"
    sleep 0.05
  done
}

expect_eq() {
  [[ $1 == "$2" ]] || fail "${3:-a value}: expected '$2', got '$1'"
}

# expect_status CODE CMD...
expect_status() {
  local expected=$1 status=0
  shift
  "$@" || status=$?
  ((status == expected)) || fail "expected status $expected, got $status: $*"
}

# fresh_lab: every node of the shared lab booted anew, whatever an earlier test did to it.
fresh_lab() { lab reset; }

# node_leftovers NODE: what a run must not leave: processes besides init and sshd, shared memory, files
# in /tmp and /run. Prints nothing when the node is clean. -xdev and -empty: the checkout and the build tree
# are mounted there, perhaps below /tmp.
node_leftovers() {
  # shellcheck disable=SC2016 # expanded on the node
  node "$1" bash -c '
    ps -eo pid=,ppid=,args= | awk -v own=$$ "\$1 != own && \$2 != own && \$1 != 1 && !/sshd: |defunct>/"
    find /dev/shm /dev/mqueue /tmp /run -xdev -mindepth 1 \( ! -type d -o -empty \) \
      ! -path /run/lock ! -path /run/sshd ! -path /run/sshd.pid ! -path /run/criu.kdat'
}

nothing_left_on() { [[ -z $(node_leftovers "$1") ]]; }

# expect_clean NODE...: nothing of ours is left on any of them, at the latest 10 s from now.
expect_clean() {
  local name deadline
  for name; do
    deadline=$((SECONDS + 10))
    until nothing_left_on "$name"; do
      ((SECONDS < deadline)) || fail "left on $name: $(node_leftovers "$name")"
      sleep 0.1
    done
  done
}
