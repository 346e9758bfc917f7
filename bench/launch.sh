#!/bin/bash
# How fast jobs start and end, against mpiexec.hydra: 64 ranks of an MPI hello and of /bin/true on four hosts.
# Both launchers get the same hosts, ssh, MPICH and UCX variables and take turns; the lab is this bench's own.
set -euo pipefail
# shellcheck source=bench/lab.bash
source "$(dirname "${BASH_SOURCE[0]}")/lab.bash"
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
bench_lab launch 4
lab exec node1 "$CHECKOUT/bench/launch_pairs.py" --pairs "$PAIRS" --ranks "$RANKS" \
  --hello "$XMPI_BUILD/tests/programs/launch_hello_c" >"$JSON"
