#!/bin/bash
# How fast the ranks' output arrives, against mpiexec.hydra: 4 ranks on two hosts write lines at full speed.
# Both launchers get the same hosts, ssh, MPICH and UCX variables and take turns; the lab is this bench's own.
set -euo pipefail
CHECKOUT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
XMPI_LAB=bench-output-$(sha256sum <<<"$CHECKOUT" | head -c 6)
export XMPI_LAB
JSON=/dev/stdout
PAIRS=5
while (($# > 0)); do
  case $1 in
    --json) JSON=${2:?--json needs a file} && shift 2 ;;
    --pairs) PAIRS=${2:?--pairs needs a number} && shift 2 ;;
    *) echo "usage: ./dev bench output [--json FILE] [--pairs N]" >&2 && exit 2 ;;
  esac
done
lab() { "$CHECKOUT/dev" lab "$@"; }
trap 'lab down >/dev/null' EXIT
lab up -n 5 >&2
lab exec node5 "$CHECKOUT/bench/output_pairs.py" --pairs "$PAIRS" \
  --flood "$XMPI_BUILD/tests/programs/launch_flood" >"$JSON"
