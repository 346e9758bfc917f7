# How much memory the nodes of the lab use while something happens: what the kernel counts for all of a node's
# processes and its memory-backed files together. By the nodes' own groups where cgroup v2 has the memory controller,
# else by groups of v1 into which the nodes' processes are put meanwhile. Sourced by downtime.sh.
# shellcheck shell=bash

MEMORY_MOUNTS=/run/cgroups # the base's own, gone with this command
MEMORY_V1="" # the folder of our groups there
MEMORY_FILES=()
MEMORY_SAMPLER=""

# memory_watch NODE...: from now on memory_begin and memory_end speak of these.
memory_watch() {
  local v2=$MEMORY_MOUNTS/v2 folder name pid
  mkdir -p "$v2"
  mountpoint -q "$v2" || mount -t cgroup2 none "$v2"
  if grep -qw memory "$v2/cgroup.controllers"; then
    for folder in "$v2" "$v2/xmpi-lab" "$v2/xmpi-lab/$XMPI_LAB"; do
      echo +memory >"$folder/cgroup.subtree_control"
    done
    MEMORY_FILES=("${@/#/$v2/xmpi-lab/$XMPI_LAB/}")
    MEMORY_FILES=("${MEMORY_FILES[@]/%//memory.current}")
    return
  fi
  mkdir -p "$MEMORY_MOUNTS/v1"
  mountpoint -q "$MEMORY_MOUNTS/v1" || mount -t cgroup -o memory none "$MEMORY_MOUNTS/v1"
  MEMORY_V1=$MEMORY_MOUNTS/v1/xmpi-$XMPI_LAB
  MEMORY_FILES=()
  for name; do
    mkdir -p "$MEMORY_V1/$name"
    while read -r pid; do
      echo "$pid" >"$MEMORY_V1/$name/cgroup.procs" || true # it may have ended
    done <"$v2/xmpi-lab/$XMPI_LAB/$name/cgroup.procs"
    MEMORY_FILES+=("$MEMORY_V1/$name/memory.usage_in_bytes")
  done
}

memory_begin() {
  "$CHECKOUT/bench/node_memory.py" "${MEMORY_FILES[@]}" >"$TEST_DIR/memory" &
  MEMORY_SAMPLER=$!
}

# memory_end TARGET: how far each of two nodes went beyond what it had before, as JSON in $TEST_DIR/peaks; the other
# was the source.
memory_end() {
  kill "$MEMORY_SAMPLER"
  wait "$MEMORY_SAMPLER"
  MEMORY_SAMPLER=""
  jq -c --arg target "$1" '
    with_entries(.key |= (split("/") | .[-2] | if . == $target then "target" else "source" end)
                 | .value |= (.peak_bytes - .before_bytes))
    | {source_extra_bytes: .source, target_extra_bytes: .target}' "$TEST_DIR/memory" >"$TEST_DIR/peaks"
}

# Gives back what memory_watch took, whatever has happened since.
memory_unwatch() {
  local name pid
  [[ -z $MEMORY_SAMPLER ]] || kill "$MEMORY_SAMPLER" || true
  [[ -n $MEMORY_V1 ]] || return 0
  for name in "$MEMORY_V1"/*/; do
    while read -r pid; do echo "$pid" >"$MEMORY_MOUNTS/v1/cgroup.procs" || true; done <"$name/cgroup.procs"
    rmdir "$name"
  done
  rmdir "$MEMORY_V1"
  MEMORY_V1=""
}
