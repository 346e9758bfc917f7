# What the measurements share: a lab of their own, taken down at the end. Sourced by the scripts of this folder.
# shellcheck shell=bash

CHECKOUT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck disable=SC2034 # where a script writes its JSON, unless --json says otherwise
JSON=/dev/stdout

lab() { "$CHECKOUT/dev" lab "$@"; }

# bench_lab NAME NODES: two checkouts never have the same one.
bench_lab() {
  XMPI_LAB=bench-$1-$(sha256sum <<<"$CHECKOUT" | head -c 6)
  export XMPI_LAB
  trap 'lab down >/dev/null' EXIT
  lab up -n "$2" >&2
}
