# Tests of what ranks hold, and of when notices find them.
foreach(test identity things streams files images notices)
  xmpi_lab_test(holds_${test} holds_${test}.sh)
endforeach()
