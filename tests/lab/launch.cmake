# Tests of xmpiexec and xmpictl on real hosts, and the small programs they run: stock MPICH, no XMPI in them.
set(launch_programs)
foreach(row "launch_hello_c:hello.c:mpicc.mpich" "launch_hello_cxx:hello.cc:mpicxx.mpich"
    "launch_hello_fortran:hello.f90:mpifort.mpich" "launch_misbehave:misbehave.c:mpicc.mpich"
    "launch_flood:flood.c:cc")
  string(REPLACE ":" ";" row ${row})
  list(GET row 0 program)
  list(GET row 1 source)
  list(GET row 2 compiler)
  set(program ${CMAKE_BINARY_DIR}/tests/programs/${program})
  add_custom_command(OUTPUT ${program}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/tests/programs
    COMMAND ${compiler} -O2 -o ${program} ${CMAKE_CURRENT_SOURCE_DIR}/launch/${source}
    DEPENDS launch/${source})
  list(APPEND launch_programs ${program})
endforeach()
add_custom_target(launch_programs ALL DEPENDS ${launch_programs})

foreach(test hello words ends faults flood ctl srun)
  xmpi_lab_test(launch_${test} launch_${test}.sh)
endforeach()
