#!/bin/bash
# What the user says reaches the ranks as it was said: arguments, environment, folder, input, hosts.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

run() { node node5 xmpiexec -timeout 100 "$@"; }
# on_two ARGS...: on two hosts, one rank each.
on_two() { run -n 2 -hosts node1,node2 "$@"; }

step "arguments with spaces, quotes, nothing and UTF-8"
# shellcheck disable=SC2016 # expanded by the ranks
odd=('' ' a  b ' "it's" '"$HOME" `ls` \' 'żółw 🐢' '*' '-n' ':x' $'two\nlines')
printf '<%s>' "${odd[@]}" >"$TEST_DIR/expected"
for host in node1 node2; do
  run -n 1 -hosts "$host" printf '<%s>' "${odd[@]}" >"$TEST_DIR/out"
  cmp "$TEST_DIR/expected" "$TEST_DIR/out" || fail "arguments changed on $host: $(cat "$TEST_DIR/out")"
done
long=$(head -c 100000 /dev/zero | tr '\0' x)
expect_eq "$(run -n 1 -hosts node1 printf %s "$long" | wc -c)" 100000 "bytes of a long argument"

step "environment"
# shellcheck disable=SC2016 # expanded by the ranks
show='echo "${A-unset}|${EMPTY-unset}|${U-unset}|${B-unset}"'
expect_eq "$(node node5 env A='a b' EMPTY= U=ü xmpiexec -n 1 -hosts node1 sh -c "$show")" "a b||ü|unset" "genvall"
expect_eq "$(node node5 env A=1 B=2 xmpiexec -genvnone -n 1 -hosts node1 sh -c "$show")" "unset|unset|unset|unset" "genvnone"
expect_eq "$(node node5 env A=1 B=2 xmpiexec -genvlist B -n 1 -hosts node1 sh -c "$show")" "unset|unset|unset|2" "genvlist"
expect_eq "$(run -genv A 1 -genv EMPTY '' -n 1 -env A 2 -hosts node1 sh -c "$show")" "2||unset|unset" "env wins over genv"
expect_eq "$(node node5 env A=1 xmpiexec -n 1 -envnone -env B=x -hosts node1 sh -c "$show")" "unset|unset|unset|x" "envnone"
expect_eq "$(node node5 env PMI_RANK=7 SSH_TTY=x xmpiexec -n 1 -hosts node1 sh -c 'echo "$PMI_RANK|${SSH_TTY-unset}"')" \
  "0|unset" "what is not the ranks' business"
expect_eq "$(on_two sh -c 'hostname' | sort | tr '\n' ' ')" "node1 node2 " "hosts"

step "folder"
expect_eq "$(run -wdir /usr/lib -n 1 -hosts node1 sh -c 'pwd; echo $PWD' | tr '\n' ' ')" "/usr/lib /usr/lib " "wdir"
expect_status 127 run -wdir /no/such/folder -n 1 -hosts node1 true 2>"$TEST_DIR/err"
grep -q "/no/such/folder" "$TEST_DIR/err" || fail "$(cat "$TEST_DIR/err")"

step "a hostfile with comments and CRLF"
printf '# hosts\r\nnode1:2 # two\r\n\r\nnode2\r\n' | node node5 sh -c 'cat >/tmp/hosts'
expect_eq "$(run -f /tmp/hosts -n 3 sh -c 'echo $PMI_RANK $(hostname)' | sort | tr '\n' ' ')" \
  "0 node1 1 node1 2 node2 " "ranks"
expect_eq "$(run -machinefile /tmp/hosts sh -c 'hostname' | sort | tr '\n' ' ')" "node1 node1 node2 " "-machinefile"
node node5 rm /tmp/hosts

step "an interface, by name and by an address that only this host has"
address=$(node node5 getent hosts node5 | cut -d' ' -f1)
expect_eq "$(on_two -iface eth0 hostname | sort | tr '\n' ' ')" "node1 node2 " "by name"
expect_eq "$(on_two -iface "$address" hostname | sort | tr '\n' ' ')" "node1 node2 " "by address"

step "fewer ports than ranks are told"
run -port-range 23000:23000 -n 2 -hosts node1 -ppn 2 true 2>"$TEST_DIR/err"
grep -q "1 ports for 2 ranks on node1" "$TEST_DIR/err" || fail "$(cat "$TEST_DIR/err")"

step "input goes to rank 0 and to nobody else"
head -c 3000000 /dev/urandom >"$TEST_DIR/in"
on_two sh -c 'if [ $PMI_RANK = 0 ]; then cat; else cat | wc -c >&2; fi' <"$TEST_DIR/in" >"$TEST_DIR/out" 2>"$TEST_DIR/err"
cmp "$TEST_DIR/in" "$TEST_DIR/out" || fail "input is not what came out"
expect_eq "$(cat "$TEST_DIR/err")" 0 "bytes for rank 1"
expect_eq "$({ yes || true; } 2>/dev/null | on_two head -n 3 | wc -l)" 3 "lines of an endless input"
expect_eq "$(on_two cat </dev/null | wc -c)" 0 "bytes of no input"
expect_eq "$(node node5 sh -c 'xmpiexec -n 2 -hosts node1,node2 cat <&-' | wc -c)" 0 "bytes of a closed input"

step "wrong words"
for words in "-n four true" "-frobnicate true" "" "-n 2" "-hosts a,,b true" "-f /no/such true" "-n 1 true : -n 2"; do
  # shellcheck disable=SC2086 # meant to be split
  expect_status 2 run $words 2>"$TEST_DIR/err"
  [[ $(wc -l <"$TEST_DIR/err") == 1 ]] || fail "'$words': $(cat "$TEST_DIR/err")"
done
run -help | grep -q -- -spares || fail "-help does not help"
run -version | grep -q xmpiexec || fail "-version says no version"
expect_clean node1 node2
