# What every part of ./dev shares: messages, the check for root, and running something long with its
# progress shown. Sourced by ./dev; knows nothing of bases or labs.
# shellcheck shell=bash

XMPI_CACHE=$(realpath -m "${XMPI_CACHE:-/var/cache/xmpi}")
XMPI_BUILD=$(realpath -m "${XMPI_BUILD:-$CHECKOUT/build}")
# shellcheck disable=SC2034 # used by the other parts
JOBS=${XMPI_JOBS:-$(nproc)}

say() { printf '%s\n' "$*" >&2; }

die() {
  printf 'dev: %s\n' "$*" >&2
  exit 1
}

usage_error() {
  printf 'dev: %s\n' "$*" >&2
  printf 'See ./dev help.\n' >&2
  exit 2
}

# A descriptor of the caller that reaches a rank cannot be dumped there: nothing but stdio goes on.
close_inherited_descriptors() {
  local path fd
  for path in "/proc/$$/fd"/*; do
    fd=${path##*/}
    # 255 is this script, which bash keeps close-on-exec.
    ((fd <= 2 || fd == 255)) || exec {fd}>&-
  done
}

check_jobs() {
  [[ $JOBS =~ ^[1-9][0-9]{0,3}$ ]] || die "XMPI_JOBS is a number of parallel compilers, not '$JOBS'"
}

need_root() {
  ((EUID == 0)) || die "this needs root (namespaces and mounts); try: sudo $0 $COMMAND"
  case $XMPI_CACHE$CHECKOUT in
    *[:,\\]* | *[[:space:]]*)
      die "the paths of the checkout and of XMPI_CACHE must have no colon, comma, backslash or space" ;;
  esac
}

# await SECONDS CMD...: run CMD until it succeeds; fails when the time is over.
await() {
  local deadline=$((${EPOCHREALTIME/[.,]/} + $1 * 1000000))
  shift
  until "$@"; do
    ((${EPOCHREALTIME/[.,]/} < deadline)) || return 1
    sleep 0.02
  done
}

# run_logged TITLE LOG CMD...: run CMD with its output in LOG and its progress on stderr: one line that
# is rewritten on a terminal, a line every 15 s elsewhere. On failure: the log's end and its name.
run_logged() {
  local title=$1 log=$2 start=$SECONDS status=0 pid
  shift 2
  mkdir -p "${log%/*}"
  # Job control gives the command a process group of its own, to be ended as a whole.
  set -m
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  set +m
  # shellcheck disable=SC2064 # the pid of now is meant
  trap "end_group $pid; exit 130" INT
  # shellcheck disable=SC2064
  trap "end_group $pid; exit 143" TERM
  show_progress "$title" "$log" "$pid"
  wait "$pid" || status=$?
  trap - INT TERM
  if ((status == 0)); then
    say "$title: done ($((SECONDS - start)) s)"
    return 0
  fi
  say "$title: FAILED after $((SECONDS - start)) s (status $status). The end of its log:"
  tail -n 40 "$log" | sed 's/^/  | /' >&2
  say "The whole log: $log"
  return "$status"
}

# Ends a process group of ours; returns when nothing of it is left.
end_group() {
  kill -- "-$1" 2>/dev/null
  await 10 group_is_gone "$1" || kill -KILL -- "-$1" 2>/dev/null
  wait "$1" 2>/dev/null || true
}

group_is_gone() { ! ps -eo pgid=,stat= | awk -v group="$1" '$1 == group && $2 !~ /^Z/ {n++} END {exit !n}'; }

show_progress() {
  local title=$1 log=$2 pid=$3 start=$SECONDS next=15 last
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    if [[ -t 2 ]]; then
      last=$(tail -c 400 "$log" 2>/dev/null | tr -d '\000' | tr '\r' '\n' | tail -n 1)
      printf '\r\033[K%s (%d s) %.*s' "$title" $((SECONDS - start)) 70 "$last" >&2
    elif ((SECONDS - start >= next)); then
      last=$(tail -c 400 "$log" 2>/dev/null | tr -d '\000' | tail -n 1)
      say "$title ($((SECONDS - start)) s) ${last:0:100}"
      next=$((next + 15))
    fi
  done
  [[ ! -t 2 ]] || printf '\r\033[K' >&2
}
