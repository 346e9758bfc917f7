#!/bin/bash
# A flood of output arrives complete, whole lines and in order, at full speed, and delays nobody: the operator is
# answered within a second even when nobody reads it. XMPI_FLOOD_MB sets the size (1 GiB over four ranks).
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
FLOOD=$XMPI_BUILD/tests/programs/launch_flood
MB=${XMPI_FLOOD_MB:-$([[ -n ${XMPI_TEST_LONG:-} ]] && echo 4096 || echo 1024)}
EACH=$((MB / 4))

# By the node's clock: what it takes to get into the lab is not the launcher's.
answers_within_a_second() { node node5 timeout 1 xmpictl status flood >"$TEST_DIR/status"; }
runs() { node node5 xmpictl status flood 2>/dev/null | grep -q running; }

step "$MB MB in lines"
began=$(date +%s%N)
node node5 bash -c "set -o pipefail; xmpiexec -job flood -n 4 -ppn 2 -hosts node1,node2 $FLOOD $EACH | $FLOOD 0 check 4 $EACH" &
job=$!
answers=0 misses=0
while kill -0 $job 2>/dev/null; do
  if node node5 xmpictl list | grep -q flood; then
    # It may have just ended.
    if answers_within_a_second 2>/dev/null; then ((++answers)); else ((++misses)); fi
  fi
done
wait $job || fail "the flood did not arrive as it was sent"
ms=$((($(date +%s%N) - began) / 1000000))
step "$((MB * 1000 / ms)) MB/s, $answers answers meanwhile"
((answers > 0)) || fail "no status was asked for in the $ms ms of the flood"
((misses <= 1)) || fail "$misses of $((answers + misses)) questions had no answer within a second"

step "nobody reads"
node node5 bash -c "mkfifo /tmp/stuck; sleep 1000 >/tmp/stuck & exec 9<>/tmp/stuck
  xmpiexec -job flood -n 4 -ppn 2 -hosts node1,node2 $FLOOD 64 >&9 & echo \$! >/tmp/pid; wait \$!; echo \$? >/tmp/code" &
job=$!
wait_for 30 runs
for _ in 1 2 3; do answers_within_a_second || fail "no answer within a second"; done
node node5 sh -c 'kill -INT $(cat /tmp/pid)'
wait_for 4 node node5 test -s /tmp/code
expect_eq "$(node node5 cat /tmp/code)" 130 "exit code"
node node5 sh -c 'pkill sleep; rm -f /tmp/stuck /tmp/pid /tmp/code'
wait $job || true

step "every byte value, without newlines that mean anything"
node node5 sh -c "xmpiexec -n 1 -hosts node1 $FLOOD 64 raw | sha256sum" >"$TEST_DIR/there"
PMI_RANK=0 "$FLOOD" 64 raw | sha256sum >"$TEST_DIR/here"
cmp "$TEST_DIR/here" "$TEST_DIR/there" || fail "binary output changed on its way"

step "no newline at the end, and on stderr"
expect_eq "$(node node5 xmpiexec -n 2 -hosts node1,node2 printf %s%s a b)" "abab"
expect_eq "$(node node5 xmpiexec -n 1 -hosts node1 sh -c 'echo out; echo err >&2' 2>/dev/null)" "out"
expect_eq "$(node node5 xmpiexec -n 1 -hosts node1 sh -c 'echo out; echo err >&2' 2>&1 >/dev/null)" "err"
expect_clean node1 node2
