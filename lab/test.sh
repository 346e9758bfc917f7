# ./dev test: builds all, then one ctest run inside the base for everything. Lab tests are scripts that
# ctest runs there too; they reach the lab by calling ./dev lab, which steps back out to the host.
# shellcheck shell=bash

cmd_test() {
  local ctest=(ctest --test-dir "$XMPI_BUILD" --output-on-failure -j "$JOBS") long="" status=0
  export XMPI_LAB_KEEP=""
  while (($# > 0)); do
    case $1 in
      --long) long=yes && export XMPI_TEST_LONG=yes && shift ;;
      --keep) XMPI_LAB_KEEP=yes && shift ;;
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
  in_base "${ctest[@]}" || status=$?
  return "$status"
}
