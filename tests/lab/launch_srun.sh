#!/bin/bash
# Under Slurm's srun an XMPI program is a plain MPI program: the safe point does nothing and the result is the same.
# The cluster is one node of the lab, with Debian's Slurm and its PMI-2 plugin, which speaks to MPICH.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

trap 'slurm_stop; rm -rf "$TEST_DIR"' EXIT
slurm_stop() {
  # shellcheck disable=SC2016 # expanded on the node
  node node5 bash -c '
    pkill slurmd; pkill slurmctld; pkill munged
    for daemon in slurmd slurmctld munged; do while pgrep -x "$daemon" >/dev/null; do sleep 0.05; done; done
    rm -rf /run/munge /run/slurm* /var/spool/slurm* /etc/slurm/slurm.conf /etc/slurm/cgroup.conf' || true
}

step "Slurm on node5"
node node5 bash -s <<'END'
set -euo pipefail
install -d -o munge -g munge -m 0755 /run/munge
setpriv --reuid munge --regid munge --clear-groups munged
mkdir -p /etc/slurm /var/spool/slurmctld /var/spool/slurmd
echo CgroupPlugin=disabled >/etc/slurm/cgroup.conf
cat >/etc/slurm/slurm.conf <<CONF
ClusterName=lab
SlurmctldHost=node5
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SchedulerType=sched/builtin
SelectType=select/linear
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
ReturnToService=2
NodeName=node5 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
slurmctld -i
slurmd
END
idle() { [[ $(node node5 sinfo -h -o %t) == idle ]]; }
wait_for 60 idle

step "heat2d under srun and alone"
heat=("$XMPI_BUILD/bin/heat2d" -size 64 -steps 50)
under_srun=$(node node5 timeout 100 srun -n 2 --overcommit --mpi=pmi2 "${heat[@]}" | grep '^checksum')
alone=$(node node5 "${heat[@]}" | grep '^checksum')
expect_eq "$under_srun" "$alone" "the checksum"
[[ -n $alone ]] || fail "there is no checksum"

slurm_stop
expect_clean node5
