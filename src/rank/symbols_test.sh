#!/bin/bash
# symbols_test.sh LIBRARY: libxmpi needs libc and the MPI library only, and shows the world nothing
# but its own names and the MPI functions that it wraps.
set -euo pipefail
library=$1

needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
stray=$(grep -vE '^(libc\.so\.[0-9]+|ld-linux.*|libmpi(ch)?\.so\.[0-9]+)$' <<<"$needed" || true)
[ -z "$stray" ] || { echo "needs more than libc and MPI: $stray"; exit 1; }
grep -q 'libmpi' <<<"$needed" || { echo "does not need MPI at all?"; exit 1; }

defined=$(nm -D --defined-only "$library" | awk '{ print $3 }')
stray=$(grep -vE '^(XMPI_|xmpi_|MPI_)' <<<"$defined" || true)
[ -z "$stray" ] || { echo "shows other symbols: $stray"; exit 1; }
for symbol in XMPI_Init XMPI_Init_thread XMPI_Quiesce XMPI_quiesce XMPI_Comm_bind XMPI_Comm_unbind \
  XMPI_Register XMPI_Finalize XMPI_Abort XMPI_Version xmpi_comm_world xmpi_safe_point \
  xmpi_quiesce_slow MPI_Isend MPI_Waitall MPI_Comm_dup; do
  grep -qx "$symbol" <<<"$defined" || { echo "does not show $symbol"; exit 1; }
done
readelf -d "$library" | grep -q 'SONAME.*\[libxmpi\.so\.0\]' || { echo "soname"; exit 1; }
echo "needs: $needed"
