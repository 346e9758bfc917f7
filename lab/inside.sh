# Running things inside the base: the compiler, ctest, a shell. The checkout keeps its path, /tmp is the
# host's, everything else that is written inside vanishes with the command.
# shellcheck shell=bash

# Where the compiler launcher finds results of earlier builds, of other checkouts too.
CCACHE_SETTINGS=(CCACHE_DIR=/var/cache/ccache "CCACHE_BASEDIR=$CHECKOUT" CCACHE_NOHASHDIR=1
  CCACHE_MAXSIZE=5G CCACHE_COMPILERCHECK=content)

# in_base [--bind PATH]... CMD...: needs BASE set (base_ensure). ./dev works inside too: it finds the
# host through XMPI_HOST_PID (see return_to_host).
in_base() {
  local binds=() passed=() name
  while [[ $1 == --bind ]]; do
    binds+=("$2")
    shift 2
  done
  for name in "${!XMPI_@}" "${!CTEST_@}" "${!GTEST_@}" "${!MPIR_@}" "${!UCX_@}" TERM CI; do
    [[ -z ${!name+x} ]] || passed+=("$name=${!name}")
  done
  [[ $XMPI_BUILD == "$CHECKOUT"/* ]] || { mkdir -p "$XMPI_BUILD" && binds+=("$XMPI_BUILD"); }
  mkdir -p "$XMPI_CACHE/mnt" "$XMPI_CACHE/ccache"
  (
    # The lock on the base is this run's, not the command's.
    exec {BASE_FD}<&-
    exec setpriv --pdeathsig TERM unshare --mount --propagation private -- "$CHECKOUT/lab/enter_base.sh" \
      "$BASE" "$CHECKOUT" "$PWD" "$XMPI_CACHE/mnt" "$XMPI_CACHE/ccache" "${binds[@]}" -- \
      /usr/bin/env -i HOME=/root LANG=C.UTF-8 \
      "PATH=$XMPI_BUILD/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
      "${CCACHE_SETTINGS[@]}" "${passed[@]}" "XMPI_HOST_PID=$$" "XMPI_CACHE=$XMPI_CACHE" \
      "XMPI_BUILD=$XMPI_BUILD" "$@"
  )
}

# return_to_host ARG...: ./dev called inside the base goes on outside, where labs live and bases are
# built. The outer ./dev waits for us, so its namespace and root are there for as long as we are.
return_to_host() {
  local host=$XMPI_HOST_PID
  unset XMPI_HOST_PID
  # shellcheck disable=SC2016 # expanded by the inner shell
  exec nsenter --target "$host" --mount --root -- /bin/bash -c \
    'cd "$0" 2>/dev/null || cd "${1%/*}"; exec "$@"' "$PWD" "$CHECKOUT/dev" "$@"
}

build_targets() {
  # shellcheck disable=SC2016 # expanded by the inner shell
  in_base /bin/bash -c '
    set -e
    # Always: a folder that is new in the tree is not among what ninja watches.
    cmake -S "$0" -B "$1" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DXMPI_COVERAGE="$3" \
      -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache
    exec ninja -C "$1" -j "$2" "${@:4}"' "$CHECKOUT" "$XMPI_BUILD" "$JOBS" "${COVERAGE:-OFF}" "$@"
}

cmd_build() {
  check_jobs
  base_ensure
  mkdir -p "$XMPI_BUILD/log" 2>/dev/null || die "cannot make the build tree $XMPI_BUILD (XMPI_BUILD names another)"
  run_logged "build" "$XMPI_BUILD/log/build.log" build_targets "$@" ||
    die "the build failed: fix what the log says and run ./dev build again"
}

cmd_shell() {
  base_ensure
  say "A shell in the Debian 13 base; what is written outside $CHECKOUT and /tmp vanishes with it."
  in_base /bin/bash "$@"
}

cmd_clean() {
  need_root
  case ${1-} in
    "") ;;
    --cache) ;;
    *) usage_error "clean takes no argument but --cache" ;;
  esac
  cmd_lab down
  rm -rf --one-file-system "$XMPI_BUILD"
  [[ ${1-} == --cache ]] || return 0
  base_lock
  local entry
  for entry in "$XMPI_CACHE"/base-????????????; do
    [[ ! -d $entry ]] || base_remove "$entry"
  done
  rm -rf --one-file-system "$XMPI_CACHE"/base-*.partial "${XMPI_CACHE:?}"/{ccache,log,mnt}
  say "Removed the build and the caches."
}
