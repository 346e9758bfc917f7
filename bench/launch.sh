#!/bin/bash
# How fast jobs start and end, against mpiexec.hydra: 64 ranks of an MPI hello and of /bin/true on four hosts.
# Both launchers get the same hosts, ssh, MPICH and UCX variables and take turns; the lab is this bench's own.
set -euo pipefail
CHECKOUT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
XMPI_LAB=bench-launch-$(sha256sum <<<"$CHECKOUT" | head -c 6)
export XMPI_LAB
JSON=/dev/stdout
PAIRS=9
RANKS=64
while (($# > 0)); do
  case $1 in
    --json) JSON=${2:?--json needs a file} && shift 2 ;;
    --pairs) PAIRS=${2:?--pairs needs a number} && shift 2 ;;
    --ranks) RANKS=${2:?--ranks needs a number} && shift 2 ;;
    *) echo "usage: ./dev bench launch [--json FILE] [--pairs N] [--ranks N]" >&2 && exit 2 ;;
  esac
done
lab() { "$CHECKOUT/dev" lab "$@"; }
trap 'lab down >/dev/null' EXIT
lab up -n 4 >&2
lab exec node1 "$CHECKOUT/bench/launch_pairs.py" --pairs "$PAIRS" --ranks "$RANKS" \
  --hello "$XMPI_BUILD/tests/programs/launch_hello_c" >"$JSON"
