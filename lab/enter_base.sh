#!/bin/bash
# enter_base.sh BASE CHECKOUT CWD MOUNTPOINT CCACHE_DIR BIND... -- CMD...
# Runs CMD in the base with the checkout at its own path. Started by in_base (inside.sh) in a new mount
# namespace; all other namespaces are the host's.
set -eu
base=$1 checkout=$2 cwd=$3 mountpoint=$4 ccache=$5
shift 5
# shellcheck source=lab/root.sh
source "${BASH_SOURCE[0]%/*}/root.sh"

root_overlay "$base" "$mountpoint"
root=$mountpoint/root
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 xmpi "$root/dev/shm"
mount -t tmpfs -o mode=755 xmpi "$root/run"
mkdir -p "$root/run/lock" "$root/run/sshd"
mount --rbind /tmp "$root/tmp"
cp -L /etc/hosts /etc/resolv.conf "$root/etc/" 2>/dev/null || true
mkdir -p "$root/var/cache/ccache"
mount --bind "$ccache" "$root/var/cache/ccache"
root_bind "$root" "$checkout"
while [[ $1 != -- ]]; do
  root_bind "$root" "$1"
  shift
done
shift
root_enter "$root"
cd "$cwd" 2>/dev/null || cd "$checkout"
exec "$@"
