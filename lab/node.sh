# One node of a lab: boot, kill, freeze, and running commands on it. A node lives exactly as long as its
# init; all of its processes are in one cgroup, by which they are frozen, counted and found after a crash.
# shellcheck shell=bash

# Every command on a node sees the build, and MPICH's advice for ranks that outnumber the cores.
node_environment() {
  printf '%s\n' "PATH=$XMPI_BUILD/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
    LANG=C.UTF-8 MPIR_CVAR_ENABLE_HEAVY_YIELD=1 MPIR_CVAR_POLLS_BEFORE_YIELD=1
}

node_address() { echo "$LAB_NETWORK.${1#node}"; }

# Uptime clocks differ by thousands of seconds between any two nodes.
node_clock_offset_s() { echo $((${1#node} * 5003)); }

node_names() { sed -e 's/^/node/' < <(seq 1 "$(<"$LAB_DIR/size")"); }

node_is_running() {
  [[ -s $LAB_DIR/$1/init ]] && grep -qsxF "$(<"$LAB_DIR/$1/init")" "$LAB_CGROUP/$1/cgroup.procs"
}

node_is_dead() { ! node_is_running "$1"; }

node_state() {
  if node_is_dead "$1"; then
    echo dead
  elif [[ $(<"$LAB_CGROUP/$1/cgroup.freeze") == 1 ]]; then
    echo frozen
  else
    echo running
  fi
}

node_must_exist() {
  [[ $1 =~ ^node[1-9][0-9]*$ && -d $LAB_DIR/$1 ]] ||
    die "lab: lab '$LAB' has no node '$1' (it has: $(node_names | paste -sd ' '))"
}

node_must_run() {
  local state
  state=$(node_state "$1")
  case $state in
    dead) die "lab: $1 is dead (./dev lab start $1 boots it again)" ;;
    frozen) die "lab: $1 is frozen (./dev lab thaw $1 lets it go on)" ;;
  esac
}

# Boots the node's init and gives back at once; node_await_ready waits for it.
node_boot() {
  local node=$1 offset
  offset=$(node_clock_offset_s "$node")
  mkdir -p "$LAB_DIR/$node/mnt" "$LAB_CGROUP/$node"
  rm -f "$LAB_DIR/$node/init"
  node_write_files "$node"
  (
    exec {STATE_LOCK}>&-
    echo "$BASHPID" >"$LAB_CGROUP/$node/cgroup.procs"
    exec setsid env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
      unshare --mount --propagation private --uts --ipc --net --cgroup --pid --fork \
      --time --monotonic "$offset" --boottime "$offset" -- \
      /bin/bash "$CHECKOUT/lab/node_boot.sh" "$BASE" "$LAB_DIR" "$node" "${LAB_BINDS[@]}"
  ) </dev/null >"$LAB_DIR/$node/console.log" 2>&1 3>"$LAB_DIR/$node/init" &
  echo $! >"$LAB_DIR/$node/supervisor"
}

# What node_boot.sh lays into the node's root besides what is the same on all nodes.
node_write_files() {
  local node=$1 setenv
  setenv=$(node_environment | sed 's/.*/"&"/' | paste -sd ' ')
  cat >"$LAB_DIR/$node/sshd_config" <<END
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
AcceptEnv LANG LC_* XMPI_* PMI_*
MaxStartups 1000
MaxSessions 1000
# A test that provokes refused logins must not lock its own host out.
PerSourcePenalties no
Subsystem sftp internal-sftp
SetEnv $setenv
END
}

node_await_ready() {
  local node=$1
  await 20 node_boot_is_over "$node" || true
  node_is_running "$node" || node_boot_failed "$node" "its init did not start"
  net_plug "$node"
  await 20 node_answers "$node" || node_boot_failed "$node" "its sshd does not answer"
}

node_boot_is_over() {
  [[ -s $LAB_DIR/$1/init ]] || ! kill -0 "$(<"$LAB_DIR/$1/supervisor")" 2>/dev/null
}

node_answers() {
  # shellcheck disable=SC2016 # expanded by the inner shell
  in_switch /bin/bash -c 'exec 3<>"/dev/tcp/$0/22"' "$(node_address "$1")" 2>/dev/null
}

node_boot_failed() {
  sed 's/^/  | /' "$LAB_DIR/$1/console.log" >&2
  die "lab: $1 did not come up: $2 (its console is above). ./dev lab down removes the rest"
}

node_freeze() {
  echo 1 >"$LAB_CGROUP/$1/cgroup.freeze"
  await 10 grep -qx 'frozen 1' "$LAB_CGROUP/$1/cgroup.events" ||
    die "lab: $1 did not freeze within 10 s (a process in the kernel's hands?); thaw undoes it"
}

node_thaw() { echo 0 >"$LAB_CGROUP/$1/cgroup.freeze"; }

# With the init dies everything in its PID namespace; those who came in from the host see their command end.
node_kill() {
  kill -KILL "$(<"$LAB_DIR/$1/init")" 2>/dev/null || true
  node_thaw "$1"
  await 20 node_is_dead "$1" || die "lab: $1's init survived SIGKILL for 20 s"
}

# node_exec NODE CMD...: becomes CMD on the node. A signal that ends this process ends CMD too.
node_exec() {
  local node=$1 environment reopen="" fd
  shift
  node_must_run "$node"
  mapfile -t environment < <(node_environment)
  [[ -z ${TERM:-} ]] || environment+=("TERM=$TERM")
  # The host's /dev/null is a file of a mount that the node cannot see; CRIU refuses such files.
  for fd in 0 1 2; do
    [[ ! /proc/$$/fd/$fd -ef /dev/null ]] || reopen+=" $fd<>/dev/null"
  done
  echo $$ >"$LAB_CGROUP/$node/cgroup.procs"
  # shellcheck disable=SC2016 # expanded by the inner shell
  exec nsenter --target "$(<"$LAB_DIR/$node/init")" \
    --mount --uts --ipc --net --pid --cgroup --time -- \
    /usr/bin/env -i HOME=/root USER=root SHELL=/bin/bash "${environment[@]}" \
    /usr/bin/setpriv --pdeathsig TERM \
    /bin/bash -c "${reopen:+exec$reopen; }"'cd "$0" 2>/dev/null || cd /root; exec -- "$@"' "$PWD" "$@"
}

# node_ssh NODE [CMD...]: as over the wire, from the switch.
node_ssh() {
  local node=$1
  shift
  BASE=$(<"$LAB_DIR/base")
  exec nsenter --target "$(<"$LAB_DIR/switch/init")" --net -- unshare --mount --propagation private -- \
    "$CHECKOUT/lab/enter_base.sh" "$BASE" "$CHECKOUT" "$PWD" "$XMPI_CACHE/mnt" "$XMPI_CACHE/ccache" \
    "$LAB_DIR" -- /usr/bin/ssh -F "$LAB_DIR/etc/ssh_config" -i "$LAB_DIR/etc/id_ed25519" \
    -o "UserKnownHostsFile=$LAB_DIR/etc/ssh_known_hosts" "root@$(node_address "$node")" "$@"
}
