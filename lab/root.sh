# Entering a root of one's own: an overlay over the base whose upper layer is in memory. Used by scripts
# that already run in a mount namespace of their own with private propagation, so every mount made here
# ends with the last process inside and the host never sees one.
# shellcheck shell=bash

# root_overlay LOWER DIR: a writable copy of LOWER at DIR/root. DIR is an empty folder.
root_overlay() {
  mount -t tmpfs -o mode=755 xmpi "$2"
  mkdir "$2/upper" "$2/work" "$2/root"
  mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" xmpi "$2/root"
}

# root_bind ROOT PATH: PATH of the host at the same place inside.
root_bind() {
  if [[ -d $2 ]]; then
    mkdir -p "$1$2"
  else
    mkdir -p "$1${2%/*}" && touch "$1$2"
  fi
  mount --rbind "$2" "$1$2"
}

# root_enter ROOT: makes ROOT the namespace's root and forgets the host's. pivot_root and not chroot:
# CRIU refuses mounts whose parent it cannot see.
root_enter() {
  cd "$1" || return
  pivot_root . .
  umount -l .
  cd /
}
