#!/bin/bash
# rxe.sh - runs a command on two "nodes" with Soft-RoCE devices, in a virtual machine that ends with the command.
set -u

usage() {
    cat <<'T'
Usage: test/cluster/rxe.sh [-c CPUS] [-m MIB] [-t SECONDS] COMMAND...

Boots the distribution's kernel in QEMU (emulation: it needs no KVM, no RDMA device and no module on this machine). The guest
sees this machine's files, read-only beneath a RAM disk: writes are lost when it ends. It has nodes node0 and node1, each with
its own network for TCP, host name, IPC, /dev/shm, and two RDMA devices: rxe0 and rxe2, rxe1 and rxe3. COMMAND runs on
node0, as root, with its environment and working directory; its output comes as it is written, its status is this one's.
In the guest `rxe-on NODE COMMAND...` runs a command on a node; it serves mpirun as its plm_rsh_agent.

  -c CPUS     of the guest (4)
  -m MIB      memory of the guest (1024)
  -t SECONDS  until it is killed: status 124 (170)

Needs root, qemu-system-x86_64, busybox, cpio, xz, depmod, and apt-get to fetch the kernel (once, 70 MB; it is kept in
${XDG_CACHE_HOME:-$HOME/.cache}/tern-rxe). Status 77: one of these is not there; 125: the guest died.
T
}

cpus=4 memory=1024 limit=170
while getopts c:m:t:h option; do
    case $option in
    c) cpus=$OPTARG ;;
    m) memory=$OPTARG ;;
    t) limit=$OPTARG ;;
    h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { usage >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
PATH=$PATH:/usr/sbin:/sbin

skip() {
    echo "rxe.sh: skipped: $*"
    exit 77
}

[ "$(id -u)" = 0 ] || skip "needs root"
for tool in qemu-system-x86_64 busybox cpio xz depmod apt-get; do
    command -v "$tool" >/dev/null || skip "there is no $tool"
done

# ---- the machine's parts: a kernel without its decompressor, which takes long under emulation, and the modules it needs ----

cache=${XDG_CACHE_HOME:-$HOME/.cache}/tern-rxe
modules="virtio_pci 9pnet_virtio 9p overlay virtio_console veth bridge crc32_generic rdma_rxe rdma_ucm"

fetch_kernel() {
    local package
    package=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends: linux-image/ {print $2; exit}')
    if [ -z "$package" ]; then
        apt-get -q -o DPkg::Lock::Timeout=300 update || return 1
        package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/ {print $2; exit}')
    fi
    apt-get -q -o APT::Sandbox::User=root -o DPkg::Lock::Timeout=300 download "$package" ||
        { apt-get -q update && apt-get -q -o APT::Sandbox::User=root download "$package"; } || return 1
    dpkg -x linux-image-*.deb kernel
}

make_image() {
    local version offset module
    fetch_kernel || return 1
    version=$(ls kernel/lib/modules)
    depmod -b kernel "$version"
    offset=$(LC_ALL=C grep -abom1 $'\xfd7zXZ' "kernel/boot/vmlinuz-$version" | cut -d: -f1)
    tail -c +$((offset + 1)) "kernel/boot/vmlinuz-$version" | xz -dcq --single-stream >vmlinux # what follows it is no xz
    [ -s vmlinux ] || return 1
    mkdir -p root/bin root/modules root/proc root/sys root/dev root/below root/ram root/new
    cp "$(command -v busybox)" root/bin/busybox
    ln -s busybox root/bin/sh
    for module in $modules; do
        modprobe -d kernel -S "$version" --show-depends "$module" | awk '$1 == "insmod" {print $2}'
    done | awk '!seen[$0]++' >list
    while read -r module; do
        cp "$module" root/modules/
        basename "$module"
    done <list >root/modules/order
    cp "$here/rxe-init.sh" root/init
    chmod +x root/init
    (cd root && find . | cpio -o -H newc --quiet) >initrd
}

prepare() {
    local key work
    mkdir -p "$cache" || return 1
    exec 9>"$cache/lock"
    flock 9
    key=$(cat "$0" "$here/rxe-init.sh" | sha256sum)
    if [ "$(cat "$cache/key" 2>/dev/null)" != "$key" ]; then
        work=$(mktemp -d) || return 1
        (cd "$work" && make_image) >"$cache/log" 2>&1 || { cat "$cache/log" >&2; rm -rf "$work"; return 1; }
        mv "$work/vmlinux" "$work/initrd" "$cache/" && echo "$key" >"$cache/key"
        rm -rf "$work"
    fi
    exec 9>&-
}

prepare || { echo "rxe.sh: cannot make the guest" >&2; exit 1; }

# ---- run ------------------------------------------------------------------------------------------------------------------

io=$(mktemp -d) qemu=""
trap '[ -z "$qemu" ] || kill "$qemu" 2>/dev/null; rm -rf "$io"' EXIT
export -p >"$io/environment"
printf '%q ' "$@" >"$io/command"
pwd >"$io/directory"
cp "$here/rxe-guest.sh" "$io/guest"
mkfifo "$io/out" "$io/err"
cat "$io/out" & cat "$io/err" >&2 &
share() {
    echo "-fsdev local,id=$1,path=$2,security_model=none$3 -device virtio-9p-pci,fsdev=$1,mount_tag=$1"
}
# shellcheck disable=SC2046 # options without spaces
timeout "$limit" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -M q35 -m "$memory" -smp "$cpus" -nodefaults \
    -display none -no-reboot -kernel "$cache/vmlinux" -initrd "$cache/initrd" -serial "file:$io/console" \
    -append "console=ttyS0 panic=-1 quiet mitigations=off nokaslr audit=0 nowatchdog random.trust_cpu=on tsc=reliable no_timer_check" \
    $(share files / ",readonly=on,multidevs=remap") $(share io "$io" "") -device virtio-serial-pci \
    -chardev "file,id=out,path=$io/out" -device virtserialport,chardev=out,name=out \
    -chardev "file,id=err,path=$io/err" -device virtserialport,chardev=err,name=err </dev/null 2>"$io/qemu" &
qemu=$!
wait "$qemu"
ended=$? qemu=""
if [ -s "$io/status" ]; then
    status=$(cat "$io/status")
elif [ $ended = 124 ]; then
    status=124
    echo "rxe.sh: not done after $limit s: killed" >&2
else
    status=125
    { echo "rxe.sh: the guest died (qemu: $ended)"; tail -n 20 "$io/qemu" "$io/console"; } >&2
fi
wait
exit "$status"
