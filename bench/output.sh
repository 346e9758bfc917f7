#!/bin/bash
# How fast the ranks' output arrives, against mpiexec.hydra: 4 ranks on two hosts write lines at full speed.
# Both launchers get the same hosts, ssh, MPICH and UCX variables and take turns; the lab is this bench's own.
set -euo pipefail
# shellcheck source=bench/lab.bash
source "$(dirname "${BASH_SOURCE[0]}")/lab.bash"
PAIRS=5
while (($# > 0)); do
  case $1 in
    --json) JSON=${2:?--json needs a file} && shift 2 ;;
    --pairs) PAIRS=${2:?--pairs needs a number} && shift 2 ;;
    *) echo "usage: ./dev bench output [--json FILE] [--pairs N]" >&2 && exit 2 ;;
  esac
done
bench_lab output 5
lab exec node5 "$CHECKOUT/bench/output_pairs.py" --pairs "$PAIRS" \
  --flood "$XMPI_BUILD/tests/programs/launch_flood" >"$JSON"
