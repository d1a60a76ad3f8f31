#!/bin/bash
# slurm.sh - runs a command on a throw-away Slurm cluster on this machine, in namespaces that end with the command.
set -u

usage() {
    cat <<'T'
Usage: test/cluster/slurm.sh [-N NODES] COMMAND...

Starts munged, slurmctld and one slurmd for each of NODES (1) nodes, runs COMMAND (srun --mpi=pmix -n 4 ./program), and
ends with its status. Everything lives in an own PID, network and mount namespace: it cannot outlive COMMAND, needs no
free ports and changes nothing outside. With more than one node each is a host of its own: its network (10.77.0.0/24, joined
by a bridge), host name, IPC and /dev/shm are separate; files are shared. Nodes claim CPUS (64) processors each.

Needs root, munge, slurmctld, slurmd, slurm-client with PMIx, unshare, ip. Status 77: one of these is not there.
Variables: CPUS, KEEP_LOGS=DIR (copies the daemons' logs there).
T
}

die() {
    echo "slurm.sh: $*" >&2
    tail -n 5 "$state"/log/* >&2 2>/dev/null
    exit 1
}

skip() {
    echo "slurm.sh: skipped: $*"
    exit 77
}

need_everything() {
    local tool
    [ "$(id -u)" = 0 ] || skip "needs root"
    for tool in munged slurmctld slurmd srun unshare ip; do
        command -v "$tool" >/dev/null || skip "there is no $tool"
    done
    unshare --mount --net --uts --ipc --pid --fork true 2>/dev/null || skip "namespaces are not allowed here"
    mountpoint -q /sys/fs/cgroup || skip "slurmd wants /sys/fs/cgroup mounted"
}

write_configuration() {
    local i host
    (umask 077 && head -c 128 /dev/urandom >"$state/munge.key")
    cat >"$state/slurm.conf" <<C
ClusterName=test
SlurmctldHost=head($net.1)
SlurmctldPort=6817
SlurmdPort=6818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$state/munge.sock
CredType=cred/munge
SlurmctldPidFile=$state/slurmctld.pid
SlurmctldLogFile=$state/log/slurmctld.log
SlurmdPidFile=$state/slurmd-%n.pid
SlurmdLogFile=$state/log/slurmd-%n.log
SlurmdSpoolDir=$state/spool/%n
# per node: the PMIx plugin makes a directory there whose name does not tell the node
TmpFS=$state/tmp/%n
StateSaveLocation=$state/save
# nothing that needs cgroups or systemd
ProctrackType=proctrack/linuxproc
JobAcctGatherType=jobacct_gather/none
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
MpiDefault=pmix
ReturnToService=2
# a node may claim more processors than the machine has
SlurmdParameters=config_overrides
KillWait=2
C
    for ((i = 0; i < nodes; i++)); do
        host=n$i
        if [ "$nodes" = 1 ]; then host="head"; fi
        echo "NodeName=n$i NodeHostname=$host NodeAddr=$(address $i) CPUs=${CPUS:-64} State=UNKNOWN"
    done >>"$state/slurm.conf"
    echo "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP" >>"$state/slurm.conf"
    {
        echo "127.0.0.1 localhost"
        echo "$net.1 head"
        for ((i = 0; nodes > 1 && i < nodes; i++)); do echo "$net.$((10 + i)) n$i"; done
    } >"$state/hosts"
}

address() {
    if [ "$nodes" = 1 ]; then echo "$net.1"; else echo "$net.$((10 + $1))"; fi
}

# A node as a host of its own: slurmd in namespaces, with one end of a cable that the bridge holds the other end of.
start_host() {
    local i=$1 pid try
    # shellcheck disable=SC2016 # expanded by the inner shell
    unshare --net --uts --ipc --mount bash -c '
        hostname "$1"
        mount -t tmpfs -o mode=1777 tmpfs /dev/shm
        ip link set lo up
        for ((try = 0; try < 200; try++)); do ip link show eth0 >/dev/null 2>&1 && break; sleep 0.02; done
        ip addr add "$2/24" dev eth0 && ip link set eth0 up
        exec slurmd -D -N "$1"' node "n$i" "$(address "$i")" >>"$state/log/n$i.out" 2>&1 &
    pid=$!
    for ((try = 0; try < 200; try++)); do
        [ "$(readlink /proc/$pid/ns/net)" != "$(readlink /proc/self/ns/net)" ] && break
        sleep 0.02
    done
    if ! { ip link add "v$i" type veth peer name eth0 netns $pid && ip link set "v$i" master br0 up; }; then
        die "no network for node n$i"
    fi
}

start() {
    local i try
    hostname head
    mount --bind "$state/hosts" /etc/hosts || die "cannot put a hosts file in place"
    ip link set lo up
    if [ "$nodes" = 1 ]; then
        ip addr add "$net.1/24" dev lo
    else
        if ! { ip link add br0 type bridge && ip addr add "$net.1/24" dev br0 && ip link set br0 up; }; then
            die "no bridge between the nodes"
        fi
    fi
    munged --force --key-file="$state/munge.key" --socket="$state/munge.sock" --pid-file="$state/munged.pid" \
        --log-file="$state/log/munged.log" --seed-file="$state/munge.seed" || die "munged did not start"
    slurmctld -i || die "slurmctld did not start"
    for ((i = 0; i < nodes; i++)); do
        mkdir -p "$state/spool/n$i" "$state/tmp/n$i"
        if [ "$nodes" = 1 ]; then
            slurmd -N n0 || die "slurmd did not start"
        else
            start_host "$i"
        fi
    done
    for ((try = 0; try < 300; try++)); do
        [ "$(sinfo -h -N -o %T 2>/dev/null | grep -cx idle)" = "$nodes" ] && return
        sleep 0.1
    done
    die "the nodes did not become idle in 30 s"
}

export PATH=$PATH:/usr/sbin:/sbin
nodes=1 net=10.77.0
if [ -n "${TEST_SLURM_STATE:-}" ]; then
    state=$TEST_SLURM_STATE nodes=$TEST_SLURM_NODES
    unset TEST_SLURM_STATE TEST_SLURM_NODES
    export SLURM_CONF=$state/slurm.conf
    start
    "$@"
    exit
fi
case ${1:-} in
-N) nodes=$2; shift 2 ;;
--help | -h) usage; exit 0 ;;
esac
[ $# -gt 0 ] || { usage >&2; exit 2; }
need_everything
state=$(mktemp -d /tmp/tern-slurm.XXXXXX) || exit 1
trap 'rm -rf "$state"' EXIT
chmod 755 "$state"
mkdir "$state/save" "$state/log"
write_configuration
TEST_SLURM_STATE=$state TEST_SLURM_NODES=$nodes \
    unshare --mount --net --uts --ipc --pid --fork --mount-proc --kill-child "$0" "$@"
status=$?
[ -n "${KEEP_LOGS:-}" ] && mkdir -p "$KEEP_LOGS" && cp "$state"/log/* "$KEEP_LOGS"
exit $status
