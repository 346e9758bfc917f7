#!/bin/bash
# fast_path_test.sh PROGRAM: the safe point without a notice, as compiled into fast_path.c's
# functions: at most 8 instructions, the count stored before the flag is loaded, nothing locked,
# fenced or called.
set -euo pipefail
program=$1

# A function's straight path: its instructions up to the first ret (the slow path lies apart).
path_of() {
  objdump -d --no-show-raw-insn "$program" | awk -v name="<$1>:" '
    $2 == name { inside = 1; next }
    inside && /^ +[0-9a-f]+:\t/ { sub(/^ +[0-9a-f]+:\t/, ""); print; if (/^ret/) exit }'
}

fail() {
  echo "$1: $2"
  path_of "$1"
  exit 1
}
line_of() { grep -nE "$1" <<<"$path" | head -1 | cut -d: -f1; }

for function in step step_without_answer; do
  path=$(path_of $function)
  [ -n "$path" ] || fail $function "not found"
  count=$(grep -vcE '^(ret|endbr64)' <<<"$path")
  [ "$count" -le 8 ] || fail $function "$count instructions"
  if grep -qE '^(lock|mfence|xchg|call)' <<<"$path"; then fail $function "locked, fenced or called"; fi
  store=$(line_of '^(mov +%[a-z0-9]+|add[lq]? .*|inc[lq]? ?),?.*# [0-9a-f]+ <xmpi_safe_point(@.*)?>')
  load=$(line_of '# [0-9a-f]+ <xmpi_safe_point\+0x8>')
  jump=$(line_of '^jne')
  [ -n "$store" ] && [ -n "$load" ] && [ -n "$jump" ] || fail $function "no store, load or branch"
  [ "$store" -lt "$load" ] || fail $function "the flag is loaded before the count is stored"
  [ "$load" -lt "$jump" ] || fail $function "the branch comes before the load"
  echo "$function: $count instructions, store before load"
done
