/* Callers of the safe point as users compile them; fast_path_test.sh reads their machine code. */
#include <stddef.h>
#include <xmpi.h>

__attribute__((noinline, noclone)) int step(void) {
  int rebuilt;
  XMPI_Quiesce(&rebuilt);
  return rebuilt;
}

__attribute__((noinline, noclone)) void step_without_answer(void) { XMPI_Quiesce(NULL); }

int main(void) {
  step_without_answer();
  return step();
}
