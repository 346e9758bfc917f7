# ./dev test: builds all, then one ctest run inside the base for everything. Lab tests are scripts that
# ctest runs there too; they reach the lab by calling ./dev lab, which steps back out to the host.
# shellcheck shell=bash

COVERAGE_FLOOR=95  # of a hundred branches

# Branches of the protocol's machines that their tests and the simulator take, in a build tree of its own
# in which only the machines are compiled to count. Fails when too few are.
test_coverage() {
  local XMPI_BUILD=$XMPI_BUILD-coverage COVERAGE=ON
  cmd_build coordinator_test agent_test xmpi-sim
  # shellcheck disable=SC2016 # expanded by the inner shell
  in_base /bin/bash -c '
    set -e -o pipefail
    cd "$0"
    find src/core -name "*.gcda" -delete
    for test in coordinator_test agent_test; do tests/$test --gtest_brief=1; done
    bin/xmpi-sim --seeds 1..3000 | tail -n 1
    # Not counted: what a broken invariant would take, unwinding, and the loops that a compiler makes of the
    # list of fields of a record.
    exec gcovr --root "$1" --object-directory . --filter "$1/src/core/" --exclude ".*_test\.cc" \
      --exclude ".*/transcript\.cc" --exclude-throw-branches --exclude-unreachable-branches \
      --exclude-branches-by-pattern ".*(XMPI_CHECK|\bLog)\(.*" --fail-under-branch "$2" --txt-metric branch --txt - \
      src/core' "$XMPI_BUILD" "$CHECKOUT" "$COVERAGE_FLOOR"
}

cmd_test() {
  local binds=() ctest=(ctest --test-dir "$XMPI_BUILD" --output-on-failure -j "$JOBS") long="" status=0
  export XMPI_LAB_KEEP=""
  while (($# > 0)); do
    case $1 in
      --long) long=yes && export XMPI_TEST_LONG=yes && shift ;;
      --coverage) test_coverage && return ;;
      --keep) XMPI_LAB_KEEP=yes && shift ;;
      --faults)
        [[ ${2-} == all ]] || usage_error "test: --faults takes the word all"
        long=yes && ctest+=(-R '^every_fault$' --verbose) && shift 2
        ;;
      --json)
        [[ $# -ge 2 ]] || usage_error "test: --json needs a file"
        XMPI_FAULTS_JSON=$(realpath -m "$2") && shift 2
        [[ -d ${XMPI_FAULTS_JSON%/*} ]] || die "--json: there is no folder ${XMPI_FAULTS_JSON%/*}"
        export XMPI_FAULTS_JSON
        binds=(--bind "${XMPI_FAULTS_JSON%/*}")
        ;;
      -R | -E | -L) ctest+=("$1" "${2-}") && shift $(($# > 1 ? 2 : 1)) ;;
      --) ctest+=("${@:2}") && break ;;
      *) usage_error "test: what is '$1'? (see ./dev help)" ;;
    esac
  done
  [[ -n $long ]] || ctest+=(-LE long)
  cmd_build
  # Never the lab that the user works with.
  XMPI_LAB=test-$(sha256sum <<<"$CHECKOUT" | head -c 6)
  export XMPI_LAB
  [[ -z $XMPI_LAB_KEEP ]] || say "The lab stays up afterwards: XMPI_LAB=$XMPI_LAB ./dev lab status"
  # The fixture takes the lab down; this is for a ctest that was interrupted or ended by force.
  trap '[[ -n $XMPI_LAB_KEEP ]] || cmd_lab down' EXIT
  in_base "${binds[@]}" "${ctest[@]}" || status=$?
  return "$status"
}
