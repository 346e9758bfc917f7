# Tests of jobs in which something fails while they move: no rank is lost, or the job says so.
foreach(test lost_images lost_places)
  xmpi_lab_test(${test} ${test}.sh)
endforeach()
xmpi_lab_test(lost_faults lost_faults.sh TIMEOUT 1800)
xmpi_lab_test(every_fault every_fault.sh TIMEOUT 7200 LONG)
