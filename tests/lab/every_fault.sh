#!/bin/bash
# Every row of the faults' table (docs/testing.md), each in a run of its own, to the last one whatever became of those
# before; ./dev test --faults all. XMPI_FAULTS_JSON names a file for the counts. A row that does not end within its time
# is hung; one whose job ended, or whose bits changed, where the table says that it goes on has lost something.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

SECONDS_OF_A_ROW=240
rows=0 passed=0 hung=0 lost=0
failed=()

while IFS='|' read -r point holder fault actor end _; do
  row="$point $holder $fault $actor"
  rows=$((rows + 1)) status=0
  began=$SECONDS
  XMPI_LOST_ONLY=$row timeout $SECONDS_OF_A_ROW "$CHECKOUT/tests/lab/lost_faults.sh" </dev/null >"$TEST_DIR/row" 2>&1 || status=$?
  step "$row -> $end: $([[ $status == 0 ]] && echo as the table says || echo "NOT, status $status") ($((SECONDS - began)) s)"
  if ((status == 0)); then
    passed=$((passed + 1))
    continue
  fi
  failed+=("$row")
  cat "$TEST_DIR/row"
  if ((status == 124)); then
    hung=$((hung + 1))
    fresh_lab
  elif [[ $end != ends ]] && grep -qE 'FAIL .*(the checksum after|exit code:)' "$TEST_DIR/row"; then
    lost=$((lost + 1))
  fi
done < <(sed -n '/^<!-- lost_faults -->/,/^<!-- end -->/p' "$CHECKOUT/docs/testing.md" | grep '^| [a-z]*\.[a-z]* ' |
  tr -d '`' | sed 's/^| *//; s/ *| */|/g')

jq -n --argjson rows $rows --argjson passed $passed --argjson hung $hung --argjson lost $lost \
  --arg date "$(date --iso-8601=seconds)" --argjson seconds $SECONDS \
  '{rows: $rows, passed: $passed, failed: $ARGS.positional, hung: $hung, lost: $lost,
    command: "./dev test --faults all", seconds: $seconds, date: $date}' --args "${failed[@]}" |
  tee "${XMPI_FAULTS_JSON:-$TEST_DIR/json}"
((rows > 0 && passed == rows)) || fail "$((rows - passed)) of $rows rows did not end as the table says"
