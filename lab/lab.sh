# ./dev lab: a small cluster on this machine, for trying XMPI and for tests that need real hosts.
# State: /run/xmpi-lab/NAME (small files; an operator may read them) and the cgroup xmpi-lab/NAME, which
# holds every process of the lab. Nothing else refers to a lab: when the processes are gone, so are its
# namespaces and mounts, and whoever finds the two can remove it all, after any crash.
# shellcheck shell=bash

STATE_ROOT=/run/xmpi-lab
LAB_NODES_MAX=250

lab_help() {
  cat <<'END'
./dev lab COMMAND: hosts made of namespaces, each with its own network, processes, root, uptime clock, sshd.

  up [-n COUNT] [--bind DIR]   start node1..nodeCOUNT (default 4); --bind: DIR too is visible on all nodes
  exec NODE CMD...             run CMD on NODE (stdin, stdout, stderr and exit code are CMD's)
  ssh NODE [CMD...]            the same over the wire
  status [--json]              what there is, and how it is
  cut NODE                     pull its network cable            heal NODE    undo cut and drop
  drop NODE                    drop its packets silently
  freeze NODE                  stop all its processes            thaw NODE    let them go on
  kill NODE                    power off                         start NODE   boot it again, on a fresh disk
  rate NODE RATE|none          limit its network, both ways: 10gbit, 100mbit
  reset                        kill and start every node
  down [--all]                 remove the lab (--all: every lab of this machine), or what is left of it

All take --name NAME (or XMPI_LAB) for another lab than this checkout's own; several can be up at once.
The checkout is visible at its own path on all nodes, its programs are in PATH, root may ssh between nodes.
END
}

cmd_lab() {
  local name=${XMPI_LAB:-lab-$(sha256sum <<<"$CHECKOUT" | head -c 6)} command="" arguments=()
  while (($# > 0)); do
    case $1 in
      --name)
        (($# > 1)) || usage_error "lab: --name takes the name of a lab"
        name=$2 && shift 2
        ;;
      *) if [[ -z $command ]]; then command=$1; else arguments+=("$1"); fi && shift ;;
    esac
    # What follows the node is the user's command, with options of its own.
    case $command in exec | ssh) ((${#arguments[@]} == 0)) || break ;; esac
  done
  case ${command:-help} in
    help | -h | --help) lab_help && return ;;
    up | down | status | exec | ssh | cut | drop | heal | freeze | thaw | kill | start | rate | reset) ;;
    *) usage_error "no such lab command: $command (see ./dev lab help)" ;;
  esac
  need_root
  lab_select "$name"
  "lab_$command" "${arguments[@]}" "$@"
}

lab_select() {
  LAB=$1
  [[ $LAB =~ ^[a-zA-Z0-9][a-zA-Z0-9_-]{0,39}$ ]] || usage_error "lab: '$LAB' is no name for a lab"
  LAB_DIR=$STATE_ROOT/$LAB
  LAB_CGROUP=$(lab_cgroup_root)/xmpi-lab/$LAB
}

# Where cgroup v2 is mounted, on every systemd in use somewhere.
lab_cgroup_root() {
  awk '$3 == "cgroup2" {print $2; found = 1; exit} END {exit !found}' /proc/mounts ||
    die "lab: no cgroup2 file system is mounted: mount -t cgroup2 none /sys/fs/cgroup (or a folder of yours)"
}

# Takes turns with other runs that make or change labs; the address range is chosen under it as well.
lab_lock() {
  while :; do
    mkdir -p "$STATE_ROOT"
    exec {STATE_LOCK}<"$STATE_ROOT"
    flock -w 120 "$STATE_LOCK" || die "lab: another ./dev lab has held the lock on $STATE_ROOT for 120 s"
    [[ ! /proc/self/fd/$STATE_LOCK -ef $STATE_ROOT ]] || break # else a "down" removed the folder meanwhile
    exec {STATE_LOCK}>&-
  done
}

# What a lab that is up was made with; later commands go by it and not by their own environment.
lab_load() {
  [[ -e $LAB_DIR/complete ]] || die "lab: lab '$LAB' is not up (./dev lab up starts it)"
  BASE=$(<"$LAB_DIR/base")
  LAB_NETWORK=$(<"$LAB_DIR/network")
  XMPI_BUILD=$(<"$LAB_DIR/build")
  mapfile -t LAB_BINDS <"$LAB_DIR/binds"
}

lab_up() {
  local count=4 node
  LAB_BINDS=("$CHECKOUT")
  while (($# > 0)); do
    case $1 in
      -n | --bind) (($# > 1)) || usage_error "lab up: $1 needs a value (see ./dev lab help)" ;;&
      -n) count=$2 && shift 2 ;;
      --bind)
        [[ -d $2 ]] || die "lab: no such folder: $2"
        LAB_BINDS+=("$(readlink -e "$2")") && shift 2
        ;;
      *) usage_error "lab up: what is '$1'? (see ./dev lab help)" ;;
    esac
  done
  [[ $count =~ ^[1-9][0-9]{0,2}$ && $count -le $LAB_NODES_MAX ]] ||
    usage_error "lab up: -n takes a number from 1 to $LAB_NODES_MAX"
  lab_check_kernel
  base_ensure
  lab_lock
  [[ ! -e $LAB_DIR/complete ]] || die "lab: lab '$LAB' is up already (./dev lab down removes it)"
  lab_remove # what a crash left
  lab_prepare "$count"
  switch_start
  for node in $(node_names); do node_boot "$node"; done
  for node in $(node_names); do node_await_ready "$node"; done
  touch "$LAB_DIR/complete"
  say "Lab '$LAB': node1..node$count on $LAB_NETWORK.0/24 are up."
}

lab_check_kernel() {
  grep -qw overlay /proc/filesystems || modprobe overlay 2>/dev/null || true
  grep -qw overlay /proc/filesystems || die "lab: this kernel has no overlay file system"
  [[ -e /proc/self/ns/time ]] || die "lab: this kernel has no time namespaces (Linux 5.6 and later have)"
  [[ -e /proc/self/ns/cgroup ]] || die "lab: this kernel has no cgroup namespaces"
}

# All that nodes are made from: addresses, names, keys.
lab_prepare() {
  local count=$1 etc=$LAB_DIR/etc node
  mkdir -p "$etc/host_keys" "$LAB_CGROUP"
  [[ -e $LAB_CGROUP/cgroup.kill ]] || die "lab: this kernel's cgroups have no cgroup.kill (Linux 5.14 has)"
  mkdir -p "$XMPI_BUILD"
  [[ $XMPI_BUILD == "$CHECKOUT"/* ]] || LAB_BINDS+=("$XMPI_BUILD")
  LAB_NETWORK=$(net_choose)
  echo "$BASE" >"$LAB_DIR/base"
  echo "$LAB_NETWORK" >"$LAB_DIR/network"
  echo "$XMPI_BUILD" >"$LAB_DIR/build"
  echo "$count" >"$LAB_DIR/size"
  echo "$CHECKOUT" >"$LAB_DIR/checkout"
  printf '%s\n' "${LAB_BINDS[@]}" >"$LAB_DIR/binds"
  for node in $(node_names); do mkdir -p "$LAB_DIR/$node"; done
  {
    echo "127.0.0.1 localhost"
    for node in $(node_names); do echo "$(node_address "$node") $node"; done
  } >"$etc/hosts"
  printf '%s\n' 'Host *' '  GSSAPIAuthentication no' '  HashKnownHosts no' >"$etc/ssh_config"
  node_environment | sed 's/^/export /' >"$etc/profile"
  # shellcheck disable=SC2016 # expanded by the inner shell
  in_base --bind "$LAB_DIR" /bin/bash -c '
    set -e
    cd "$0"
    ssh-keygen -q -t ed25519 -N "" -C xmpi-lab -f id_ed25519
    while read -r address node; do
      [[ $node != localhost ]] || continue
      ssh-keygen -q -t ed25519 -N "" -C "$node" -f "host_keys/$node"
      echo "$node,$address $(cut -d" " -f1,2 "host_keys/$node.pub")"
    done <hosts >ssh_known_hosts' "$etc"
}

lab_down() {
  local name
  [[ $# == 0 || "$*" == --all ]] || usage_error "lab down: what is '$*'? (see ./dev lab help)"
  [[ -d $STATE_ROOT || -d ${LAB_CGROUP%/*} ]] || return 0
  lab_lock
  if [[ $# == 0 ]]; then
    lab_remove
  else
    for name in $(lab_names); do
      lab_select "$name"
      lab_remove
    done
  fi
  rmdir "${LAB_CGROUP%/*}" "$STATE_ROOT" 2>/dev/null || true # others may be up
}

# Ends every process of the lab, whatever state it is in; with them go its namespaces and mounts.
lab_remove() {
  local cgroup
  if [[ -d $LAB_CGROUP ]]; then
    echo 1 >"$LAB_CGROUP/cgroup.kill"
    await 30 grep -qx 'populated 0' "$LAB_CGROUP/cgroup.events" ||
      die "lab: processes of lab '$LAB' survive SIGKILL: see $LAB_CGROUP/*/cgroup.procs"
    for cgroup in "$LAB_CGROUP"/*/ "$LAB_CGROUP"; do
      [[ ! -d $cgroup ]] || await 10 rmdir "$cgroup" 2>/dev/null || die "lab: cannot remove the cgroup $cgroup"
    done
  fi
  rm -rf --one-file-system "$LAB_DIR"
}

# Every lab that has a folder or a cgroup.
lab_names() {
  local path
  for path in "$STATE_ROOT"/*/ "${LAB_CGROUP%/*}"/*/; do
    [[ ! -d $path ]] || basename "$path"
  done | sort -u
}

lab_exec() {
  (($# >= 2)) || usage_error "lab exec takes a node and a command"
  lab_load
  node_must_exist "$1"
  node_exec "$@"
}

lab_ssh() {
  (($# >= 1)) || usage_error "lab ssh takes a node"
  lab_load
  node_must_exist "$1"
  node_ssh "$@"
}

lab_cut() { lab_act net_cut "$@"; }
lab_drop() { lab_act net_drop "$@"; }
lab_heal() { lab_act net_heal "$@"; }
lab_freeze() { lab_act node_freeze "$@"; }
lab_thaw() { lab_act node_thaw "$@"; }
lab_kill() { lab_act node_kill "$@"; }

lab_rate() {
  (($# == 2)) || usage_error "lab rate takes a node and a rate (10gbit, 100mbit, none)"
  [[ $2 == none ]] || rate_bytes_per_s "$2" >/dev/null
  LAB_RATE=$2 lab_act net_rate "$1"
}

# lab_act ACTION NODE: ACTION on one node that is not dead, under the lock.
lab_act() {
  (($# == 2)) || usage_error "lab ${1#*_} takes a node"
  lab_load
  lab_lock
  node_must_exist "$2"
  node_is_running "$2" || die "lab: $2 is dead (./dev lab start $2 boots it again)"
  "$1" "$2"
}

lab_start() {
  (($# == 1)) || usage_error "lab start takes a node"
  lab_load
  lab_lock
  node_must_exist "$1"
  node_is_dead "$1" || die "lab: $1 is up already"
  node_boot "$1"
  node_await_ready "$1"
}

lab_reset() {
  local node
  lab_load
  lab_lock
  for node in $(node_names); do
    node_is_dead "$node" || node_kill "$node"
  done
  for node in $(node_names); do node_boot "$node"; done
  for node in $(node_names); do node_await_ready "$node"; done
}

lab_status() {
  local node format='%-8s %-15s %-8s %-5s %-8s %s\n' separator=
  lab_load
  if [[ ${1-} == --json ]]; then
    format='%s{"name":"%s","address":"%s","state":"%s","link":"%s","rate":"%s","clock_offset_s":%d,"init_pid":%d}'
    printf '{"lab":"%s","network":"%s.0/24","base":"%s","nodes":[' "$LAB" "$LAB_NETWORK" "$BASE"
  else
    # shellcheck disable=SC2059 # the format is ours
    printf "lab $LAB, $LAB_NETWORK.0/24\n$format" node address state link rate 'clock offset'
  fi
  for node in $(node_names); do
    local facts=("$node" "$(node_address "$node")" "$(node_state "$node")" "$(<"$LAB_DIR/$node/link")"
      "$(<"$LAB_DIR/$node/rate")" "$(node_clock_offset_s "$node")")
    # shellcheck disable=SC2059 # the format is ours
    if [[ ${1-} == --json ]]; then
      printf "$format" "$separator" "${facts[@]}" "$(<"$LAB_DIR/$node/init")"
    else
      printf "$format" "${facts[@]}"
    fi
    separator=,
  done
  [[ ${1-} != --json ]] || printf ']}\n'
}
