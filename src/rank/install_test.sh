#!/bin/bash
# install_test.sh BUILD SOURCE: what is installed is enough to compile a program by pkg-config, by
# find_package(xmpi) and in Fortran, and the program runs.
set -euo pipefail
build=$1 source=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cmake --install "$build" --component libxmpi --prefix "$folder/prefix" >/dev/null
libdir=$(dirname "$(find "$folder/prefix" -name 'libxmpi.so')")
export PKG_CONFIG_PATH=$libdir/pkgconfig

read -ra flags <<<"$(pkg-config --cflags --libs xmpi)"
mpicc "$source/examples/heat2d.c" -o "$folder/heat" "${flags[@]}" -lm
LD_LIBRARY_PATH=$libdir "$folder/heat" -size 32 -steps 20 | grep -q '^checksum 0x'

mkdir "$folder/program"
cat >"$folder/program/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(program C)
find_package(xmpi 0.1 REQUIRED)
add_executable(heat "$source/examples/heat2d.c")
target_link_libraries(heat PRIVATE xmpi::xmpi m)
END
cmake -G Ninja -S "$folder/program" -B "$folder/program/build" -DCMAKE_PREFIX_PATH="$folder/prefix" >/dev/null
cmake --build "$folder/program/build" >/dev/null
"$folder/program/build/heat" -size 32 -steps 20 | grep -q '^checksum 0x'

cat >"$folder/program.f90" <<END
program test
  use mpi
  use xmpi
  implicit none
  integer :: rebuilt, error, ranks, total
  integer, target, save :: copy
  if (XMPI_Init(c_null_ptr, c_null_ptr) /= MPI_SUCCESS) stop 2
  call MPI_Comm_dup(XMPI_COMM_WORLD, copy, error)
  if (XMPI_Comm_bind(copy) /= MPI_SUCCESS) stop 3
  rebuilt = 7
  if (XMPI_Quiesce(rebuilt) /= MPI_SUCCESS .or. rebuilt /= 0) stop 4
  call MPI_Comm_size(XMPI_COMM_WORLD, ranks, error)
  call MPI_Allreduce(1, total, 1, MPI_INTEGER, MPI_SUM, copy, error)
  if (total /= ranks) stop 5
  if (XMPI_Finalize() /= MPI_SUCCESS) stop 6
  print '(a)', 'all is well'
end program
END
mpifort -J "$folder" "$folder/prefix/include/xmpi.f90" "$folder/program.f90" -o "$folder/fortran" "${flags[@]}"
LD_LIBRARY_PATH=$libdir "$folder/fortran" | grep -qx 'all is well'

for file in include/xmpi.h share/man/man3/XMPI_Quiesce.3; do
  [ -s "$folder/prefix/$file" ] || { echo "$file is not installed"; exit 1; }
done
echo "pkg-config, find_package and the Fortran module work"
