#!/bin/bash
# node_boot.sh BASE LAB_DIR NODE BIND... 3>INIT_FILE
# The first process of a node: already in the node's own mount, UTS, IPC, network, cgroup, PID and time
# namespaces, still in the host's root. Makes the node's root, then becomes its init (tini, which reaps
# orphans and has sshd as its child). The init's PID, as the host sees it, is written to descriptor 3 when
# the root is complete.
set -eu
base=$1 lab_dir=$2 node=$3
shift 3
# shellcheck source=lab/root.sh
source "${BASH_SOURCE[0]%/*}/root.sh"
own=$lab_dir/$node

# /proc is still the host's, so this is init's PID as the host sees it.
read -r host_pid _ </proc/self/stat

root_overlay "$base" "$own/mnt"
root=$own/mnt/root
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs -o mode=755 xmpi "$root/dev"
cp -a /dev/{null,zero,full,random,urandom,tty} "$root/dev/"
mkdir "$root/dev/net"
for device in kmsg fuse net/tun userfaultfd; do
  [[ ! -e /dev/$device ]] || cp -a "/dev/$device" "$root/dev/$device"
done
mkdir "$root"/dev/{pts,shm,mqueue}
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t mqueue mqueue "$root/dev/mqueue"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"
ln -s fd/1 "$root/dev/stdout"
ln -s fd/2 "$root/dev/stderr"
mount -t tmpfs -o mode=1777 xmpi "$root/dev/shm"
mount -t tmpfs -o mode=1777 xmpi "$root/tmp"
mount -t tmpfs -o mode=755 xmpi "$root/run"
mkdir -p "$root"/run/{lock,sshd}

hostname "$node"
echo "$node" >"$root/etc/hostname"
cp "$lab_dir/etc/hosts" "$root/etc/hosts"
: >"$root/etc/resolv.conf"
cp "$lab_dir"/etc/{ssh_config,ssh_known_hosts} "$own/sshd_config" "$root/etc/ssh/"
cp "$lab_dir/etc/host_keys/$node" "$root/etc/ssh/ssh_host_ed25519_key"
mkdir -p "$root/root/.ssh"
chmod 700 "$root/root/.ssh"
cp "$lab_dir"/etc/id_ed25519{,.pub} "$root/root/.ssh/"
cp "$lab_dir/etc/id_ed25519.pub" "$root/root/.ssh/authorized_keys"
cp "$lab_dir/etc/profile" "$root/etc/profile.d/xmpi-lab.sh"

# Last, so that a checkout below /tmp or /run is not covered.
for path; do
  root_bind "$root" "$path"
done

root_enter "$root"
echo "$host_pid" >&3
exec 3>&- </dev/null
exec tini -- /usr/sbin/sshd -D -e
