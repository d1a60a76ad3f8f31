#!/bin/bash
# rxe-guest.sh - in the guest of rxe.sh: Soft-RoCE devices and two nodes, then the command, then power off.
# Soft-RoCE lives in the first network namespace, whoever opens its devices. So all four are there, joined by a bridge and
# reached by their link-local GIDs, and a node is: namespaces, and the sight of two of the devices.

# shellcheck source=/dev/null
. /run/io/environment
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH
ulimit -l unlimited
mkdir -p /run/lock
ip link set lo up
# its work is done by ksoftirqd, which would queue behind whoever polls
for comm in /proc/[0-9]*/comm; do
    read -r name <"$comm"
    [[ $name != ksoftirqd* ]] || chrt -f -p 50 "$(basename "$(dirname "$comm")")"
done 2>/dev/null
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad # link-local addresses are usable at once

printf '%s\n' '127.0.0.1 localhost' '10.3.0.1 node0' '10.3.0.2 node1' >/run/hosts
ip link add rail type bridge
ip link set rail mtu 4200 up
for i in 0 1 2 3; do
    ip link add v$i mtu 4200 type veth peer name p$i mtu 4200
    ip link set p$i master rail up
    ip link set v$i up
    rdma link add rxe$i type rxe netdev v$i
done
ip netns add node0
ip netns add node1
ip link add w0 netns node0 type veth peer name w1 netns node1
for n in 0 1; do
    node=/run/node$n
    mkdir -p $node/dev $node/class
    mkdir -m 1777 $node/shm
    for i in "$n" $((n + 2)); do
        cp -a "/dev/infiniband/uverbs$i" $node/dev/
        ln -s "$(readlink -f "/sys/class/infiniband/rxe$i")" "$node/class/rxe$i"
    done
    cat /proc/sys/kernel/random/uuid >$node/boot_id
    ip -n node$n addr add 10.3.0.$((n + 1))/24 dev w$n
    ip -n node$n link set w$n up
    ip -n node$n link set lo up
done

cat >/usr/local/bin/rxe-on <<'ON'
#!/bin/bash
node=$1
shift
[[ $1 != *[[:space:]]* ]] || set -- bash -c "$*" # one argument, as ssh takes it
exec ip netns exec "$node" unshare --mount --uts --ipc bash -c '
    hostname "$0"
    mount --bind /run/hosts /etc/hosts
    mount --bind "/run/$0/boot_id" /proc/sys/kernel/random/boot_id
    mount --bind "/run/$0/shm" /dev/shm
    mount --bind "/run/$0/dev" /dev/infiniband
    mount --bind "/run/$0/class" /sys/class/infiniband
    exec "$@"' "$node" "$@"
ON
chmod +x /usr/local/bin/rxe-on

for i in 0 1 2 3; do
    for _ in {1..50}; do
        read -r gid </sys/class/infiniband/rxe$i/ports/1/gids/0 && [[ $gid = fe80* ]] && break
        sleep 0.1
    done
done
for port in /sys/class/virtio-ports/*; do
    declare "$(cat "$port/name")=/dev/$(basename "$port")"
done
mkfifo /run/out /run/err
# shellcheck disable=SC2154 # names of the ports
cat /run/out >"$out" &
keep=$!
# shellcheck disable=SC2154
cat /run/err >"$err" &
keep="$keep $!"
cd "$(cat /run/io/directory)" || exit
eval "rxe-on node0 $(cat /run/io/command)" </dev/null >/run/out 2>/run/err
echo $? >/run/io/status
for process in /proc/[0-9]*; do
    process=${process#/proc/}
    [[ " 1 $keep " = *" $process "* ]] || kill -9 "$process"
done 2>/dev/null
# shellcheck disable=SC2086 # two processes
wait $keep
sync
echo o >/proc/sysrq-trigger
sleep 60
