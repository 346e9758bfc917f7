# Tests of a job that moves, and of the proxies that move it.
foreach(test move_once move_around move_refused plain_user proxy_strangers proxy_ends proxy_places proxy_faults)
  xmpi_lab_test(${test} ${test}.sh)
endforeach()
