# The base: a Debian 13 tree in which XMPI is compiled and which every lab node has as its lower layer.
# Built once with debootstrap into $XMPI_CACHE/base-<hash of recipe and package list> and never written
# to again (all who use it put an overlay on top), so that a manifest of sizes and times tells whether
# it is whole. Half-built and broken bases are removed and built anew; two runs take turns.
# shellcheck shell=bash

BASE_RECIPE=1 # +1 whenever this file builds something else from the same list
BASE_SUITE=trixie
BASE_NEEDS_GIB=6
BASES_KEPT=2
PACKAGE_LIST=$CHECKOUT/lab/packages.txt

# Set by base_ensure.
BASE=

base_packages() { sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' "$PACKAGE_LIST"; }

base_path() {
  local hash
  hash=$({
    echo "$BASE_RECIPE $BASE_SUITE"
    base_packages | sort
  } | sha256sum)
  echo "$XMPI_CACHE/base-${hash:0:12}"
}

# Everything in the tree by name, type, mode, size, time and link target: a file that is missing, cut
# short or replaced changes it. /dev is left out: bind mounts by hand tend to touch it.
base_manifest() {
  (cd "$1" && find . -xdev -path ./dev -prune -o -printf '%P %y %m %s %T@ %l\n' | LC_ALL=C sort) |
    sha256sum
}

base_is_whole() {
  [[ -d $1 && -f $1.stamp && $(<"$1.stamp") == "$(base_manifest "$1")" ]]
}

# Leaves BASE set to a base that is whole.
base_ensure() {
  need_root
  BASE=$(base_path)
  base_lock
  if ! base_is_whole "$BASE"; then
    [[ ! -e $BASE && ! -e $BASE.partial ]] ||
      say "The base in $BASE is incomplete or damaged: building it anew."
    base_build "$BASE"
    base_collect_garbage "$BASE"
  fi
  # Keeps the garbage collection of another checkout away for as long as this run lives.
  exec {BASE_FD}<"$BASE"
  flock -s "$BASE_FD"
  exec {BASE_LOCK}>&-
}

base_lock() {
  mkdir -p "$XMPI_CACHE" || die "cannot make the cache folder $XMPI_CACHE"
  exec {BASE_LOCK}>"$XMPI_CACHE/lock"
  if ! flock -w 2 "$BASE_LOCK"; then
    say "Waiting for another run that uses $XMPI_CACHE ..."
    flock "$BASE_LOCK"
  fi
}

base_build() {
  local base=$1 partial=$1.partial log=$XMPI_CACHE/log/base.log mirror packages
  base_check_space
  base_install_tools
  mirror=$(base_mirror)
  mapfile -t packages < <(base_packages)
  rm -f "$base.stamp" # first: a removal cut short must not look whole
  rm -rf --one-file-system "$base" "$partial"
  say "Building the Debian 13 base (once; some minutes) in $base"
  run_logged "base 1/2: debootstrap" "$log" \
    unshare --mount --propagation private bash -c "$(declare -f base_bootstrap); base_bootstrap \"\$@\"" _ \
    "$partial" "$BASE_SUITE" "$mirror" || base_build_failed
  APT_SETTINGS=$(base_apt_settings)
  export APT_SETTINGS
  run_logged "base 2/2: packages" "${log%.log}-packages.log" \
    unshare --mount --propagation private bash -c "$(declare -f base_add_packages); base_add_packages \"\$@\"" _ \
    "$partial" "${packages[@]}" || base_build_failed
  base_manifest "$partial" >"$base.stamp.partial"
  mv "$partial" "$base"
  mv "$base.stamp.partial" "$base.stamp"
}

base_build_failed() {
  local hint="see the log above"
  if (($(df --output=avail -k "$XMPI_CACHE" | tail -n 1) < 200 * 1024)); then
    hint="the disk of $XMPI_CACHE is full: free $BASE_NEEDS_GIB GiB, or set XMPI_CACHE to another disk"
  fi
  die "the base could not be built: $hint"
}

base_check_space() {
  local free_kib
  free_kib=$(df --output=avail -k "$XMPI_CACHE" | tail -n 1)
  ((free_kib >= BASE_NEEDS_GIB * 1024 * 1024)) ||
    die "the base needs $BASE_NEEDS_GIB GiB in $XMPI_CACHE, but only $((free_kib / 1024)) MiB are free:" \
      "free some, or set XMPI_CACHE to a folder on another disk"
}

base_install_tools() {
  command -v debootstrap >/dev/null && return
  command -v apt-get >/dev/null || die "this needs debootstrap; the machine has no apt-get to install it with"
  export DEBIAN_FRONTEND=noninteractive
  run_logged "apt-get update" "$XMPI_CACHE/log/host-apt.log" apt-get -y update ||
    die "apt-get update failed: is the network up?"
  run_logged "install debootstrap" "$XMPI_CACHE/log/host-apt.log" \
    apt-get -y install --no-install-recommends debootstrap ||
    die "debootstrap could not be installed with apt-get: see the log above"
}

# The Debian mirror that this machine's own apt sources name (XMPI_MIRROR overrides): the first that has
# the suite and says of itself that it is Debian's, for other vendors' sources look alike.
base_mirror() {
  local uri asked=0
  for uri in ${XMPI_MIRROR:-$(base_mirror_candidates)}; do
    asked=$((asked + 1))
    base_mirror_answers "$uri" && echo "$uri" && return
  done
  ((asked > 0)) ||
    die "no Debian mirror found in this machine's apt sources: set XMPI_MIRROR to the address of one"
  die "no network? The Debian mirror${XMPI_MIRROR:+ $XMPI_MIRROR} that this machine's apt uses gives no" \
    "$BASE_SUITE, and the base is built from it (XMPI_MIRROR names another)"
}

base_mirror_candidates() {
  local uri
  # shellcheck disable=SC2016 # apt expands the format
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
    awk '$3 == "main" && $2 !~ /security|updates|backports/ {print $1}' |
    while read -r uri; do
      # Cloud images name a file that holds the mirror's address.
      [[ $uri != mirror+file:* ]] || uri=$(grep -m1 -oE 'https?://[^[:space:]]+' "${uri#mirror+file:}" || true)
      case $uri in http://* | https://* | file:/*) echo "${uri%/}" ;; esac
    done | awk '!seen[$0]++'
}

base_mirror_answers() {
  local probe found=1
  probe=$(mktemp)
  timeout 60 /usr/lib/apt/apt-helper download-file "$1/dists/$BASE_SUITE/InRelease" "$probe" >/dev/null 2>&1 &&
    grep -qx 'Origin: Debian' "$probe" && found=0
  rm -f "$probe"
  return "$found"
}

# How this machine's apt reaches the mirror: proxies and the like, for apt inside the base.
base_apt_settings() {
  apt-config dump | grep -E '^Acquire::(https?::|ForceIPv|Check-|Retries)' || true
}

base_bootstrap() {
  set -eu
  local proxy=
  eval "$(apt-config shell proxy Acquire::http::Proxy)"
  [[ -z $proxy || -n ${http_proxy:-} ]] || export http_proxy=$proxy
  debootstrap --variant=minbase --include=ca-certificates "$2" "$1" "$3"
}

# base_add_packages ROOT PACKAGE...: runs in a mount namespace of its own, so that nothing stays mounted in
# the tree whatever happens. Proxies (which may hold a password) come in the environment, not in arguments.
base_add_packages() {
  set -eu
  local root=$1
  shift
  mount -t proc proc "$root/proc"
  mount -t sysfs sysfs "$root/sys"
  mount --rbind /dev "$root/dev"
  cp -L /etc/resolv.conf "$root/etc/resolv.conf"
  printf '%s\n' "$APT_SETTINGS" >"$root/etc/apt/apt.conf.d/99host"
  # No service starts in a tree, and a tree that is thrown away when unfinished needs no fsync.
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
  chmod 755 "$root/usr/sbin/policy-rc.d"
  echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
  local in_root=(chroot "$root" env -u TMPDIR PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
    DEBIAN_FRONTEND=noninteractive)
  "${in_root[@]}" apt-get -y update
  "${in_root[@]}" apt-get -y install --no-install-recommends "$@"
  "${in_root[@]}" apt-get clean
  rm -rf "$root"/var/lib/apt/lists/* "$root"/etc/ssh/ssh_host_* "$root/usr/sbin/policy-rc.d" \
    "$root/etc/apt/apt.conf.d/99host" "$root/etc/resolv.conf"
}

# Only the newest bases stay; one in use by a run or a lab stays too.
base_collect_garbage() {
  local old kept=0
  while read -r old; do
    ((++kept > BASES_KEPT)) || continue
    base_remove "$old"
  done < <(find "$XMPI_CACHE" -maxdepth 1 -name 'base-????????????.stamp' -printf '%T@ %p\n' |
    sort -rn | sed -e 's/^[^ ]* //' -e 's/\.stamp$//')
  for old in "$XMPI_CACHE"/base-*.partial; do
    [[ ! -d $old ]] || rm -rf --one-file-system "$old"
  done
}

base_remove() {
  if grep -qxF "$1" /run/xmpi-lab/*/base 2>/dev/null; then return; fi
  flock -n -x "$1" true || return 0
  say "Removing the old base $1"
  rm -f "$1.stamp"
  rm -rf --one-file-system "$1"
}
