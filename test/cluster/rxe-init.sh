#!/bin/sh
# rxe-init.sh - first process of the guest (rxe.sh): modules, the host's files beneath a RAM disk, then rxe-guest.sh.
box=/bin/busybox
$box mount -t proc proc /proc
$box mount -t sysfs sysfs /sys
$box mount -t devtmpfs dev /dev
while read -r module; do
    $box insmod "/modules/$module"
done </modules/order
options=trans=virtio,version=9p2000.L,msize=512000
$box mount -t 9p -o $options,cache=loose,ro files /below
$box mount -t tmpfs ram /ram
$box mkdir /ram/upper /ram/work
$box mount -t overlay -o lowerdir=/below,upperdir=/ram/upper,workdir=/ram/work root /new
cd /new || exit
for fs in proc sysfs devtmpfs; do
    case $fs in
    proc) at=proc ;;
    sysfs) at=sys ;;
    *) at=dev ;;
    esac
    $box mount -t $fs $fs $at
done
$box mkdir -p dev/shm dev/pts
$box mount -t devpts pts dev/pts
$box mount -t tmpfs -o mode=1777 shm dev/shm
$box mount -t tmpfs run run
$box mkdir run/io
$box mount -t 9p -o $options,cache=none io run/io
exec $box chroot /new /bin/bash /run/io/guest
