#!/bin/bash
# model_test.sh FOLDER: checks the models with spin, exhaustively. The quiesce has no fault; the
# same without one of its rules has, and so has the paper's flag test.
set -euo pipefail
models=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# check MODEL [DEFINES...]: spin's verdict in $folder/verdict
check() {
  local model=$1
  shift
  mkdir -p "$folder/pan"
  (cd "$folder/pan" && rm -f ./* &&
    spin "$@" -a "$models/$model" >/dev/null &&
    gcc -O2 -w -DSAFETY -DCOLLAPSE -DVECTORSZ=2048 -DMEMLIM=3000 -o pan pan.c &&
    ./pan -m1000000 -n) >"$folder/verdict" 2>&1 || { cat "$folder/verdict"; exit 1; }
}

is_sound() {
  check "$@"
  grep -qE 'errors: 0$' "$folder/verdict" || { echo "$*: a fault"; cat "$folder/verdict"; exit 1; }
  # An exhausted limit is no proof.
  if grep -qE 'max search depth too small|out of memory|Search not completed' "$folder/verdict"; then
    echo "$*: not exhaustive"; cat "$folder/verdict"; exit 1
  fi
  echo "$*: no fault in $(awk '/states, stored/ { print $1 }' "$folder/verdict") states"
}

has_fault() {
  local kind=$1
  shift
  check "$@"
  grep -q "$kind" "$folder/verdict" || { echo "$*: no $kind found"; cat "$folder/verdict"; exit 1; }
  echo "$*: $(grep -m1 "$kind" "$folder/verdict" | sed 's/^pan:[0-9]*: //; s/ (at depth.*//')"
}

is_sound quiesce.pml -DCALLS=2 -DMIGRATIONS=2
is_sound quiesce.pml -DCALLS=4 -DMIGRATIONS=1
has_fault 'invalid end state\|assertion violated' quiesce.pml -DLOAD_BEFORE_STORE
has_fault 'invalid end state' quiesce.pml -DHANDLER_NOTICES_ONLY -DCALLS=3
has_fault 'invalid end state' quiesce.pml -DCHECK_SOME
has_fault 'invalid end state\|assertion violated' quiesce.pml -DNO_MIGRATION_IDS
has_fault 'invalid end state' flag_test.pml
