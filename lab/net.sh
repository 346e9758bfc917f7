# A lab's network: one bridge in a network namespace of its own (the switch), a port for each node, and a
# private range that collides with nothing this machine uses. The host has no address on it and it has no
# way out. ip, bridge and tc come from the base.
# shellcheck shell=bash

# Candidates, from all private ranges, so that a route to a whole one of them leaves another.
LAB_RANGES=(10.77 172.29 192.168 198.18 10.191 172.18 100.100)
SWITCH_HOST=254

in_switch() { nsenter --target "$(<"$LAB_DIR/switch/init")" --net -- chroot "$BASE" "$@"; }

# in_node_net NODE CMD...: CMD of the base in the node's network namespace only, frozen or not.
in_node_net() { nsenter --target "$(<"$LAB_DIR/$1/init")" --net -- chroot "$BASE" "${@:2}"; }

switch_start() {
  mkdir -p "$LAB_DIR/switch" "$LAB_CGROUP/switch"
  # shellcheck disable=SC2016 # expanded by the inner shell
  (
    exec {STATE_LOCK}>&-
    echo "$BASHPID" >"$LAB_CGROUP/switch/cgroup.procs"
    echo "$BASHPID" >"$LAB_DIR/switch/init"
    exec setsid unshare --net -- /bin/bash -c \
      'touch "$0"; exec -a "$1" sleep infinity' "$LAB_DIR/switch/ready" "xmpi-lab:$LAB:switch"
  ) </dev/null >/dev/null 2>&1 &
  await 10 test -e "$LAB_DIR/switch/ready" || die "lab: the switch's network namespace did not start"
  in_switch ip -batch - <<END
link set lo up
link add switch type bridge stp_state 0 forward_delay 0
addr add $LAB_NETWORK.$SWITCH_HOST/24 dev switch
link set switch up
END
}

# net_plug NODE: a fresh cable from the node's eth0 to its port on the switch.
net_plug() {
  local node=$1 port
  port=$(net_port "$node")
  in_switch ip link del "$port" 2>/dev/null || true # of a dead node, whose namespace goes in its own time
  # In the switch's network, but with the node's /proc, where its init is 1: so ip can name both ends.
  nsenter --net="/proc/$(<"$LAB_DIR/switch/init")/ns/net" --mount="/proc/$(<"$LAB_DIR/$node/init")/ns/mnt" \
    -- ip -batch - <<END
link add $port type veth peer name eth0 address $(net_hardware_address "$node") netns /proc/1/ns/net
link set $port master switch up
END
  in_node_net "$node" ip -batch - <<END
link set lo up
addr add $(node_address "$node")/24 brd + dev eth0
link set eth0 up
END
  echo up >"$LAB_DIR/$node/link"
  echo none >"$LAB_DIR/$node/rate"
}

# The same at each boot: the neighbours remember it.
net_hardware_address() { printf '02:78:6d:70:69:%02x' "${1#node}"; }

net_port() { echo "port${1#node}"; }

# cut: the cable is pulled; the node sees its link go down.
net_cut() {
  in_switch ip link set "$(net_port "$1")" down
  echo cut >"$LAB_DIR/$1/link"
}

# drop: the link stays up, but the port forwards nothing in either direction (bridge state "disabled").
net_drop() {
  in_switch ip link set "$(net_port "$1")" up
  in_switch bridge link set dev "$(net_port "$1")" state 0
  echo drop >"$LAB_DIR/$1/link"
}

net_heal() {
  in_switch ip link set "$(net_port "$1")" up
  # The kernel notices in its own time that the cable is back.
  await 10 in_switch bridge link set dev "$(net_port "$1")" state 3 2>/dev/null ||
    die "lab: the port of $1 does not come up again"
  echo up >"$LAB_DIR/$1/link"
}

# Limits both directions to LAB_RATE, each on the side that sends.
net_rate() {
  local node=$1 rate=$LAB_RATE burst
  in_switch tc qdisc del dev "$(net_port "$node")" root 2>/dev/null || true
  in_node_net "$node" tc qdisc del dev eth0 root 2>/dev/null || true
  if [[ $rate != none ]]; then
    # What passes in 4 ms (a timer tick of any kernel), and at least one large segment.
    burst=$(($(rate_bytes_per_s "$rate") / 250))
    ((burst >= 131072)) || burst=131072
    in_switch tc qdisc add dev "$(net_port "$node")" root tbf rate "$rate" burst "$burst" latency 50ms
    in_node_net "$node" tc qdisc add dev eth0 root tbf rate "$rate" burst "$burst" latency 50ms
  fi
  echo "$rate" >"$LAB_DIR/$node/rate"
}

rate_bytes_per_s() {
  [[ $1 =~ ^([1-9][0-9]{0,5})(kbit|mbit|gbit)$ ]] ||
    die "lab: a rate is a number with kbit, mbit or gbit (10gbit), or none; not '$1'"
  local unit
  case ${BASH_REMATCH[2]} in
    kbit) unit=1000 ;;
    mbit) unit=1000000 ;;
    gbit) unit=1000000000 ;;
  esac
  echo $((BASH_REMATCH[1] * unit / 8))
}

# The first three numbers of a free /24.
net_choose() {
  local used range third
  used=$({
    chroot "$BASE" ip -4 -o addr show | awk '{print $4}'
    chroot "$BASE" ip -4 route show table all | awk '{for (i = 1; i <= 2; i++) if ($i ~ /^[0-9.]+(\/[0-9]+)?$/) print $i}'
    sed 's/$/.0\/24/' "$STATE_ROOT"/*/network 2>/dev/null
  } | sort -u)
  for range in "${LAB_RANGES[@]}"; do
    for third in 77 88 99 111 122 133 144 155 166 177; do
      net_is_free "$range.$third" "$used" && echo "$range.$third" && return
    done
  done
  die "lab: no free private /24 found: this machine's routes cover all of ${LAB_RANGES[*]}"
}

net_is_free() {
  local candidate used address length mask
  candidate=$(ipv4_number "$1.0")
  while IFS=/ read -r address length; do
    [[ -n $address ]] || continue
    length=${length:-32}
    ((length <= 24)) || length=24
    ((length > 0)) || continue
    mask=$((0xffffffff << (32 - length) & 0xffffffff))
    used=$(ipv4_number "$address")
    (((candidate & mask) != (used & mask))) || return 1
  done <<<"$2"
}

ipv4_number() {
  local a b c d
  IFS=. read -r a b c d <<<"$1"
  echo $((${a:-0} << 24 | ${b:-0} << 16 | ${c:-0} << 8 | ${d:-0}))
}
