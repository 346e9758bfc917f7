#!/bin/bash
# Any MPICH program runs under xmpiexec: C, C++ and Fortran, 64 ranks on four hosts, several programs in one job.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
HOSTS=node1,node2,node3,node4
HELLO=$XMPI_BUILD/tests/programs/launch_hello

run() { node node5 xmpiexec -timeout 100 "$@"; }

for language in c cxx fortran; do
  step "64 ranks of $language"
  run -n 64 -ppn 16 -hosts $HOSTS "${HELLO}_$language" >"$TEST_DIR/out" || fail "exit code $?"
  expect_eq "$(wc -l <"$TEST_DIR/out")" 64 "lines"
  [[ $language != c ]] || expect_eq "$(grep -c "universe 64 appnum 0" "$TEST_DIR/out")" 64 "ranks that know the universe"
  expect_eq "$(grep -c 'of 64 .*sum 2016' "$TEST_DIR/out")" 64 "ranks that know of all others"
  expect_eq "$(awk '{print $2}' "$TEST_DIR/out" | sort -n | uniq | tr '\n' ' ')" "$(seq 0 63 | tr '\n' ' ')" "the ranks"
done

step "sixteen of them are on each host"
run -n 64 -ppn 16 -hosts $HOSTS "${HELLO}_c" >"$TEST_DIR/out"
for ((i = 0; i < 64; ++i)); do
  grep -q "^rank $i of 64 on node$((i / 16 + 1)) " "$TEST_DIR/out" || fail "rank $i is not on node$((i / 16 + 1))"
done

step "labels"
run -l -n 4 -ppn 2 -hosts node1,node2 "${HELLO}_c" | sort >"$TEST_DIR/out"
for ((i = 0; i < 4; ++i)); do grep -q "^\[$i\] rank $i of 4 " "$TEST_DIR/out" || fail "no label for rank $i"; done

step "several programs in one job, and the universe"
run -hosts node1,node2 -usize 9 -n 1 "${HELLO}_c" : -n 2 "${HELLO}_cxx" : -n 1 "${HELLO}_c" >"$TEST_DIR/out"
grep -q "^rank 0 of 4 .* universe 9 appnum 0" "$TEST_DIR/out" || fail "rank 0: $(cat "$TEST_DIR/out")"
grep -q "^rank 3 of 4 .* universe 9 appnum 2" "$TEST_DIR/out" || fail "rank 3: $(cat "$TEST_DIR/out")"
expect_eq "$(grep -c 'of 4 sum 6' "$TEST_DIR/out")" 2 "ranks of the middle program"

step "the same host as two slots"
run -hosts node1,node1 -ppn 2 -n 4 "${HELLO}_c" >"$TEST_DIR/out"
expect_eq "$(grep -c 'of 4 on node1 sum 6' "$TEST_DIR/out")" 4 "ranks on node1"

step "on this host alone, without ssh"
node node5 env PATH=/usr/bin:/bin "$XMPI_BUILD/bin/xmpiexec" -n 3 "${HELLO}_c" >"$TEST_DIR/out"
expect_eq "$(grep -c 'of 3 on node5 sum 3' "$TEST_DIR/out")" 3 "ranks on node5"

step "by another remote shell than ssh"
cat >"$TEST_DIR/shell" <<'END'
#!/bin/sh
host=$1
shift
exec ssh "$host" "$@"
END
chmod +x "$TEST_DIR/shell"
node node5 sh -c "cat >/tmp/shell && chmod +x /tmp/shell" <"$TEST_DIR/shell"
run -launcher exec /tmp/shell -n 2 -hosts node1,node2 "${HELLO}_c" >"$TEST_DIR/out"
expect_eq "$(grep -c 'of 2 .*sum 1 ' "$TEST_DIR/out")" 2 "ranks"
node node5 rm /tmp/shell

step "ports and interface within bounds"
run -port-range 20000:20100 -iface eth0 -n 4 -ppn 2 -hosts node1,node2 "${HELLO}_c" >"$TEST_DIR/out"
expect_eq "$(grep -c 'of 4 .*sum 6 ' "$TEST_DIR/out")" 4 "ranks"

expect_clean node1 node2 node3 node4
